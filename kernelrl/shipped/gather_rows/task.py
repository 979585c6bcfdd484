"Embedding lookup: rows of a table by int64 index"
import torch
import torch.nn as nn

ROWS, D, N = 50000, 256, 65536
SHAPES = [{"ROWS": 97, "D": 129, "N": 37},
          {"ROWS": 500, "D": 200, "N": 1000}]
LEVEL = 1
DISTRIBUTIONS = ("own",)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ROWS, D)

    def forward(self, index):
        return self.embed(index)


def get_inputs():
    return [torch.randint(0, ROWS, (N,))]


def get_init_inputs():
    return []
