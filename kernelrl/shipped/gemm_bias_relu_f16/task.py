"A linear layer and ReLU in half precision (accumulate in float)"
import torch
import torch.nn as nn

M, N, K = 2048, 2048, 1024
SHAPES = [{"M": 37, "N": 65, "K": 129},
          {"M": 100, "N": 130, "K": 100}]
LEVEL = 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(K, N, dtype=torch.float16)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(M, K, dtype=torch.float16)]


def get_init_inputs():
    return []
