"Matrix product in single precision"
import torch
import torch.nn as nn

M, N, K = 2048, 1024, 1024
SHAPES = [{"M": 37, "N": 65, "K": 129},
          {"M": 100, "N": 130, "K": 100}]
LEVEL = 1


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
