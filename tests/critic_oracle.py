"""SAC's updates with any kind of critic in numpy float64: forward passes by hand, gradients by central differences."""

import jax
import numpy as np

STEP = 1e-5
"""The step of central differences, whose error is of the order of its square."""


def in_double(tree):
    return jax.tree.map(lambda x: np.array(x, np.float64), tree)


def dense(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def huber(error, delta):
    size = np.abs(error)
    return np.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def descend(loss, params, rate):
    """One step of plain gradient descent, in place: each number by its central difference."""
    moves = []
    leaves = jax.tree.leaves(params)
    for leaf in leaves:
        slope = np.zeros_like(leaf)
        for index in np.ndindex(leaf.shape):
            kept = leaf[index]
            leaf[index] = kept + STEP
            above = loss()
            leaf[index] = kept - STEP
            slope[index] = (above - loss()) / (2 * STEP)
            leaf[index] = kept
        moves.append(slope)
    for leaf, slope in zip(leaves, moves, strict=True):
        leaf -= rate * slope


def project(values, probabilities, support):
    """Bellemare et al. 2017, Algorithm 1, atom by atom."""
    low, high, width = support[0], support[-1], support[1] - support[0]
    target = np.zeros((len(values), len(support)))
    for n in range(len(values)):
        for value, probability in zip(values[n], probabilities[n], strict=True):
            b = (np.clip(value, low, high) - low) / width
            below = int(np.floor(b))
            above = min(below + 1, len(support) - 1)
            target[n, below] += probability * (1 - (b - below))
            target[n, above] += probability * (b - below)
    return target


class SoftActorCritic:
    """SAC by hand: one hidden layer of tanh in the actor and in each of ``K`` critics, plain gradient descent.

    ``kind`` is that of the critics, ``support`` the atoms of categorical ones, ``kappa`` the threshold of quantiles,
    and ``left`` how many atoms of all critics together TQC keeps (0: it is SAC, by the least mean).
    """

    def __init__(self, state, kind, rate, tau, support=None, kappa=1.0, left=0):
        self.actor = in_double(state.params["actor"]["params"])
        self.critic = in_double(state.params["critic"]["params"])
        self.slow = in_double(state.target_params["critic"]["params"])
        self.log_temperature = {"log": in_double(state.params["log_temperature"])}
        self.kind, self.rate, self.tau, self.support, self.kappa, self.left = kind, rate, tau, support, kappa, left

    def draw(self, obs, noise):
        """An action in [-1, 1] and the logarithm of its density, that of a Gaussian over the slope of tanh."""
        out = dense(self.actor["Dense_0"], np.tanh(dense(self.actor["torso"]["Dense_0"], obs)))
        mean, log_std = np.split(out, 2, axis=-1)
        action = np.tanh(mean + np.exp(log_std) * noise)
        density = np.exp(-0.5 * noise**2) / np.sqrt(2 * np.pi) / np.exp(log_std) / (1 - action**2)
        return action, np.sum(np.log(density), axis=-1)

    def outputs(self, critic, obs, action):
        """``[K, N]`` values, or ``[K, N, J]``."""
        x = np.concatenate([obs, action], axis=-1)
        result = []
        for k in range(len(critic["Dense_0"]["bias"])):
            one = jax.tree.map(lambda leaf, k=k: leaf[k], critic)
            result.append(dense(one["Dense_0"], np.tanh(dense(one["joint"]["Dense_0"], x))))
        out = np.array(result)
        return out[..., 0] if self.kind == "scalar" else out

    def means(self, out):
        if self.kind == "scalar":
            return out
        return softmax(out) @ self.support if self.kind == "categorical" else out.mean(axis=-1)

    def judged(self, obs, action, critic):
        """What the actor climbs: the least mean; TQC's the mean of all atoms of all critics."""
        means = self.means(self.outputs(critic, obs, action))
        return means.mean(axis=0) if self.left else means.min(axis=0)

    def target(self, items, noise):
        """Atoms ``[N, J]`` and their probabilities."""
        action, log_prob = self.draw(items["next_obs"], noise)
        out = self.outputs(self.slow, items["next_obs"], action)
        if self.left:
            atoms = np.sort(np.concatenate(list(out), axis=-1), axis=-1)[:, : self.left]
            probabilities = None
        else:
            best = np.argmin(self.means(out), axis=0)
            chosen = np.array([out[k, n] for n, k in enumerate(best)])
            atoms, probabilities = chosen.reshape(len(best), -1), None
            if self.kind == "categorical":
                atoms, probabilities = np.tile(self.support, (len(best), 1)), softmax(chosen)
        cost = np.exp(self.log_temperature["log"]) * log_prob
        return items["reward"][:, None] + items["discount"][:, None] * (atoms - cost[:, None]), probabilities

    def losses(self, out, atoms, probabilities):
        """The loss and the error ``[N]`` of one critic."""
        if self.kind == "scalar":
            error = atoms[:, 0] - out
            return 0.5 * error**2, error
        if self.kind == "categorical":
            target = project(atoms, probabilities, self.support)
            entropy = -np.sum(np.where(target > 0, target * np.log(np.where(target > 0, target, 1)), 0), axis=-1)
            loss = -np.sum(target * np.log(softmax(out)), axis=-1)
            return loss, loss - entropy
        size = out.shape[-1]
        loss = np.zeros(len(out))
        for i in range(size):
            delta = atoms - out[:, i : i + 1]
            weight = np.abs((i + 0.5) / size - (delta < 0))
            loss += np.mean(weight * huber(delta, self.kappa) / self.kappa, axis=-1)
        return loss, atoms.mean(axis=-1) - out.mean(axis=-1)

    def update(self, items, weight, noise_next, noise_actor, target_entropy):
        """Moves everything by one update; returns the critics' loss and the priorities, both before it."""
        atoms, probabilities = self.target(items, noise_next)
        seen = items["obs"], items["action"]

        def each():
            return [self.losses(out, atoms, probabilities) for out in self.outputs(self.critic, *seen)]

        def critic_loss():
            return np.mean(weight * sum(loss for loss, _ in each()))

        before = critic_loss(), np.mean([np.abs(error) for _, error in each()], axis=0)
        descend(critic_loss, self.critic, self.rate)
        old = np.exp(self.log_temperature["log"])

        def actor_loss():
            action, log_prob = self.draw(items["obs"], noise_actor)
            return np.mean(weight * (old * log_prob - self.judged(items["obs"], action, self.critic)))

        _, log_prob = self.draw(items["obs"], noise_actor)

        def temperature_loss():
            return np.mean(weight * np.exp(self.log_temperature["log"]) * (-log_prob - target_entropy))

        descend(actor_loss, self.actor, self.rate)
        descend(temperature_loss, self.log_temperature, self.rate)
        self.slow = jax.tree.map(lambda new, slow: slow + self.tau * (new - slow), self.critic, self.slow)
        return before
