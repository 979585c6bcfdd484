"Batch of matrix products in half precision (accumulate in float)"
import torch
import torch.nn as nn

B, M, N, K = 64, 512, 512, 128
SHAPES = [{"B": 3, "M": 37, "N": 29, "K": 65},
          {"B": 2, "M": 100, "N": 100, "K": 50}]
LEVEL = 1


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(B, M, K, dtype=torch.float16), torch.randn(B, K, N, dtype=torch.float16)]


def get_init_inputs():
    return []
