"The gate of a SwiGLU feed-forward layer: gate * sigmoid(gate) * up, in half precision"
import torch
import torch.nn as nn

N, D = 4096, 4096
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 2
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse")


class Model(nn.Module):
    def forward(self, gate, up):
        return gate * torch.sigmoid(gate) * up


def get_inputs():
    return [torch.randn(N, D, dtype=torch.float16), torch.randn(N, D, dtype=torch.float16)]


def get_init_inputs():
    return []
