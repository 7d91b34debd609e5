"""End-to-end reinforcement learning in JAX: a whole training is one pure function, to jit and vmap.

env, config = envs.make("CartPole-v1"), ppo.Config()
result = jax.jit(ppo.make_train(config, env))(jax.random.key(0))

``__init__.pyi`` lists the names. A name is imported, and JAX with it, when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
