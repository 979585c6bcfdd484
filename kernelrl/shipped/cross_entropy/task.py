"Mean cross entropy of rows of logits against int64 labels"
import torch
import torch.nn as nn
import torch.nn.functional as F

N, D = 2048, 8192
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 2
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse")


class Model(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels)


def get_inputs():
    scale = 1.0 + 2.0 * torch.rand(())
    return [torch.randn(N, D) * scale, torch.randint(0, D, (N,))]


def get_init_inputs():
    return []
