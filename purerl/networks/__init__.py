"""Networks: layers, torsos and heads; memories, recurrent networks and networks of action values."""

from purerl.networks.heads import (
    ActorCritic,
    Head,
    PolicyAndValue,
    actor_critic,
    as_actor_critic,
    legal_only,
    one_each,
    predictions,
)
from purerl.networks.layers import ACTIVATIONS, MLP, Conv, dense, halve, orthogonal, windows
from purerl.networks.torsos import CNN, KINDS, Convolution, Convolutions, OnPart, ResNet, is_image, torso

__all__ = [
    "ACTIVATIONS",
    "CNN",
    "KINDS",
    "MLP",
    "ActorCritic",
    "Conv",
    "Convolution",
    "Convolutions",
    "Head",
    "PolicyAndValue",
    "ResNet",
    "OnPart",
    "actor_critic",
    "as_actor_critic",
    "dense",
    "halve",
    "is_image",
    "legal_only",
    "one_each",
    "orthogonal",
    "predictions",
    "torso",
    "windows",
]
