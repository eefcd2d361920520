"""Models of two parts: two towers with contrastive logits, and a variational autoencoder."""
import torch
from torch import nn

from language import BertLayer
from vision import Vit


class Clip(nn.Module):
    """An image and a text tower; logits[i, j] compares image i with text j."""

    def __init__(self, words=37, width=16, length=8, shared=12):
        super().__init__()
        self.image = Vit(width, 2, 1, patches=9, classes=shared)
        self.word, self.position = nn.Embedding(words, width), nn.Parameter(0.1 * torch.randn(length, width))
        self.text, self.text_norm = BertLayer(width, 2), nn.LayerNorm(width)
        self.text_projection = nn.Parameter(width**-0.5 * torch.randn(width, shared))
        self.logit_scale = nn.Parameter(torch.tensor(2.6593))
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1), persistent=False)

    def forward(self, images, texts):
        a = self.image(images)
        x = self.text_norm(self.text(self.word(texts) + self.position, self.mask))
        b = x[torch.arange(x.shape[0]), texts.argmax(-1)] @ self.text_projection
        a, b = a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True)
        return self.logit_scale.exp() * a @ b.t()


class Vae(nn.Module):
    """Its loss is the model's own output; the noise comes in from outside."""

    def __init__(self, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.mean, self.log_variance = nn.Linear(128, latent), nn.Linear(128, latent)
        self.expand = nn.Linear(latent, 128)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1))

    def forward(self, images, noise):
        x = self.encoder(images)
        mean, log_variance = self.mean(x), self.log_variance(x)
        z = mean + noise * torch.exp(0.5 * log_variance)
        pixels = self.decoder(torch.relu(self.expand(z)).view(-1, 8, 4, 4))
        rebuilt = nn.functional.binary_cross_entropy_with_logits(pixels, images, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return (rebuilt + divergence) / images.shape[0]
