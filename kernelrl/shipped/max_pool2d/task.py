"Max pooling, 3 x 3 windows, stride 2, padding 1"
import torch
import torch.nn as nn
import torch.nn.functional as F

B, C, H, W = 16, 64, 112, 112
SHAPES = [{"B": 2, "C": 3, "H": 37, "W": 29},
          {"B": 2, "C": 5, "H": 100, "W": 100}]
LEVEL = 1
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse")


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(B, C, H, W)]


def get_init_inputs():
    return []
