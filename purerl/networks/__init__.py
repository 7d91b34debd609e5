"""Networks: layers, torsos and heads; memories, recurrent networks and networks of action values."""

from purerl.networks import memory, recurrent, value_networks
from purerl.networks.heads import ActorCritic, Head, actor_critic, legal_only, shared_actor_critic
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
    "shared_actor_critic",
    "torso",
    "value_networks",
]
