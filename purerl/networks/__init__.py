"""Networks: layers, torsos and heads; memories, recurrent networks and networks of action values."""

from purerl.networks import memory, recurrent, value_networks
from purerl.networks.heads import ActorCritic, Head, actor_critic, legal_only
from purerl.networks.layers import ACTIVATIONS, MLP
from purerl.networks.torsos import CNN, ResNet, torso

__all__ = [
    "ACTIVATIONS",
    "CNN",
    "MLP",
    "ActorCritic",
    "Head",
    "ResNet",
    "actor_critic",
    "legal_only",
    "memory",
    "recurrent",
    "torso",
    "value_networks",
]
