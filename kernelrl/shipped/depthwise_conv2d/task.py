"Depthwise convolution, 3 x 3, padding 1, with bias: each channel has its own filter"
import torch
import torch.nn as nn

B, C, H, W = 32, 128, 56, 56
SHAPES = [{"B": 2, "C": 5, "H": 13, "W": 17},
          {"B": 2, "C": 20, "H": 50, "W": 50}]
LEVEL = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(C, C, kernel_size=3, padding=1, groups=C)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(B, C, H, W)]


def get_init_inputs():
    return []
