"Index of the largest element of each row; no row has a tie"
import torch
import torch.nn as nn

N, D = 4096, 4096
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 1
DISTRIBUTIONS = ("own", "scaled", "shifted")


class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)


def get_inputs():
    x = torch.randn(N, D)
    lead = torch.full((N, 1), 0.01)  # the winner wins clearly, so that the answer does not hang on the order of ties
    return [x.scatter_add(1, x.argmax(dim=1, keepdim=True), lead)]


def get_init_inputs():
    return []
