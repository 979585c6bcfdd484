"Rotary position embedding, the two halves of each head rotated, in half precision"
import torch
import torch.nn as nn

B, S, H, D = 4, 2048, 16, 128
SHAPES = [{"B": 2, "S": 37, "H": 3, "D": 66},
          {"B": 1, "S": 100, "H": 5, "D": 64}]
LEVEL = 2


class Model(nn.Module):
    def forward(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin


def get_inputs():
    angle = torch.arange(S)[:, None] * 10000.0 ** (-torch.arange(0, D, 2) / D)
    angle = torch.cat((angle, angle), dim=-1)[:, None, :]  # [S, 1, D], the same for all heads
    return [torch.randn(B, S, H, D, dtype=torch.float16), angle.cos().half(), angle.sin().half()]


def get_init_inputs():
    return []
