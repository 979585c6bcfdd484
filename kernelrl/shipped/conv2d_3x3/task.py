"Two-dimensional convolution, 3 x 3, padding 1, with bias"
import torch
import torch.nn as nn

B, CIN, COUT, H, W = 16, 32, 64, 56, 56
SHAPES = [{"B": 2, "CIN": 3, "COUT": 5, "H": 13, "W": 17},
          {"B": 1, "CIN": 12, "COUT": 20, "H": 30, "W": 30}]
LEVEL = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CIN, COUT, kernel_size=3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(B, CIN, H, W)]


def get_init_inputs():
    return []
