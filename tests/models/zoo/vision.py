"""Small image and point models, written as their papers draw them (torchvision's layouts where it has them)."""
import torch
from torch import nn


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attend(self, x):
        b, n, width = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        weights = ((q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self, width=20, heads=4, depth=2, patches=16, classes=10):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.position = nn.Parameter(torch.randn(1, patches + 1, width) * 0.1)
        self.blocks = nn.Sequential(*[VitBlock(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def tokens(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.norm(self.blocks(x))

    def forward(self, x):
        return self.head(self.tokens(x)[:, 0])


class BasicBlock(nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False), nn.BatchNorm2d(outs)
        self.conv2, self.bn2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs)
        self.downsample = None
        if stride != 1 or ins != outs:
            self.downsample = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Eight basic blocks in four stages, as in the paper; 3 to 13 channels instead of 64 to 512."""

    def __init__(self, channels=(3, 5, 8, 13), classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, channels[0], 7, 2, 3, bias=False), nn.BatchNorm2d(channels[0])
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        blocks, ins = [], channels[0]
        for stage, outs in enumerate(channels):
            blocks += [BasicBlock(ins, outs, 2 if stage else 1), BasicBlock(outs, outs, 1)]
            ins = outs
        self.layers = nn.Sequential(*blocks)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(ins, classes)

    def forward(self, x):
        x = self.layers(self.maxpool(torch.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))

    def folded(self):
        """The network that an exporter writes in eval mode: each BatchNorm is part of its convolution."""
        fuse = torch.nn.utils.fusion.fuse_conv_bn_eval
        self.eval()
        self.conv1, self.bn1 = fuse(self.conv1, self.bn1), nn.Identity()
        for block in self.layers:
            block.conv1, block.bn1 = fuse(block.conv1, block.bn1), nn.Identity()
            block.conv2, block.bn2 = fuse(block.conv2, block.bn2), nn.Identity()
            if block.downsample is not None:
                block.downsample = nn.Sequential(fuse(*block.downsample), nn.Identity())
        return self


class InvertedResidual(nn.Module):
    def __init__(self, ins, outs, stride, expand):
        super().__init__()
        wide = ins * expand
        layers = [] if expand == 1 else [nn.Conv2d(ins, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, outs, 1, bias=False), nn.BatchNorm2d(outs)]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and ins == outs

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU6(),
            InvertedResidual(6, 4, 1, 1), InvertedResidual(4, 6, 2, 6), InvertedResidual(6, 6, 1, 6),
            InvertedResidual(6, 9, 2, 6), InvertedResidual(9, 9, 1, 6),
            nn.Conv2d(9, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6())
        self.classifier = nn.Linear(24, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


def double_conv(ins, outs):
    return nn.Sequential(nn.Conv2d(ins, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU(),
                         nn.Conv2d(outs, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU())


class UNet(nn.Module):
    """Two levels down and up; a class for each pixel."""

    def __init__(self, width=5, classes=3):
        super().__init__()
        self.down1, self.down2, self.bottom = double_conv(1, width), double_conv(width, 2 * width), double_conv(2 * width, 3 * width)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.up1 = nn.ConvTranspose2d(3 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join2, self.join1 = double_conv(4 * width, 2 * width), double_conv(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        y = self.join2(torch.cat([b, self.up2(self.bottom(self.pool(b)))], 1))
        return self.head(self.join1(torch.cat([a, self.up1(y)], 1)))


class PointNet(nn.Module):
    """Shared layers on each point with the input transform of the paper, then the maximum over points."""

    def __init__(self, classes=8):
        super().__init__()
        layers = lambda *sizes: nn.Sequential(*[  # noqa: E731
            layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())])
        self.local, self.transform = layers(3, 12, 24), nn.Linear(24, 9)
        self.shared = layers(3, 16, 32, 48)
        self.head = nn.Sequential(nn.Linear(48, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, points):
        align = self.transform(self.local(points).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        aligned = torch.bmm(points.transpose(2, 1), align).transpose(2, 1)
        return torch.log_softmax(self.head(self.shared(aligned).max(2)[0]), 1)
