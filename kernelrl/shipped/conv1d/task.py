"One-dimensional convolution, 3 taps, padding 1, with bias"
import torch
import torch.nn as nn

B, CIN, COUT, L = 16, 64, 64, 4096
SHAPES = [{"B": 2, "CIN": 3, "COUT": 5, "L": 129},
          {"B": 2, "CIN": 12, "COUT": 20, "L": 500}]
LEVEL = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CIN, COUT, kernel_size=3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(B, CIN, L)]


def get_init_inputs():
    return []
