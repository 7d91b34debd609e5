"""Networks: layers, torsos and heads; memories, recurrent networks and networks of action values."""

from purerl.networks.heads import ActorCritic, Head, PolicyAndValue, actor_critic, predictions
from purerl.networks.layers import ACTIVATIONS, MLP, Conv, dense, halve, orthogonal, windows
from purerl.networks.torsos import CNN, ResNet, torso

__all__ = [
    "ACTIVATIONS",
    "CNN",
    "MLP",
    "ActorCritic",
    "Conv",
    "Head",
    "PolicyAndValue",
    "ResNet",
    "actor_critic",
    "dense",
    "halve",
    "orthogonal",
    "predictions",
    "torso",
    "windows",
]
