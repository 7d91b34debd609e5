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


class Renormed:
    """A network of CrossQ by hand: renormalisation, then a dense layer of tanh and renormalisation, then a dense layer.

    ``params`` and ``statistics`` are of one network; ``layers`` is where they hold what stands before the last layer.
    """

    def __init__(self, params, statistics, layers, warmup):
        self.params, self.statistics, self.layers, self.warmup = params, statistics, layers, warmup

    def at(self, tree):
        for name in self.layers:
            tree = tree[name]
        return tree

    def normalised(self, i, x, batch, frozen):
        """Ioffe's Algorithm 1, or by running statistics if not ``batch``. ``frozen`` has ``r`` and ``d`` of each layer
        at the parameters where the gradient is taken, and gets them at the first call."""
        layer = self.at(self.params)[f"BatchRenorm_{i}"]
        running = self.at(self.statistics)[f"BatchRenorm_{i}"]
        deviation = np.sqrt(running["var"] + 1e-3)
        if not batch:
            return (x - running["mean"]) / deviation * layer["scale"] + layer["bias"]
        mean, own = np.mean(x, axis=0), np.sqrt(np.var(x, axis=0) + 1e-3)
        if i not in frozen:
            r, d = np.clip(own / deviation, 1 / 3, 3), np.clip((mean - running["mean"]) / deviation, -5, 5)
            early = running["batches"] < self.warmup
            frozen[i] = (1.0, 0.0, mean, own**2 - 1e-3) if early else (r, d, mean, own**2 - 1e-3)
        r, d = frozen[i][:2]
        return ((x - mean) / own * r + d) * layer["scale"] + layer["bias"]

    def __call__(self, x, batch=False, frozen=None):
        hidden = np.tanh(dense(self.at(self.params)["Dense_0"], self.normalised(0, x, batch, frozen)))
        return dense(self.params["Dense_0"], self.normalised(1, hidden, batch, frozen))

    def remember(self, frozen):
        """Moves the running statistics by those of the batch that ``frozen`` was made of."""
        for i, (_, _, mean, var) in frozen.items():
            running = self.at(self.statistics)[f"BatchRenorm_{i}"]
            running["mean"] = 0.99 * running["mean"] + 0.01 * mean
            running["var"] = 0.99 * running["var"] + 0.01 * var
            running["batches"] = running["batches"] + 1


class CrossQ:
    """CrossQ's updates by hand, with two critics."""

    def __init__(self, state, rate, warmup, delay):
        actor = in_double(state.params["actor"])
        critic = in_double(state.params["critic"])
        network = lambda tree, layers: Renormed(tree["params"], tree["batch_stats"], layers, warmup)
        self.actor = network(actor, ("torso", "layers_1"))
        self.critics = [network(jax.tree.map(lambda x, k=k: x[k].copy(), critic), ("joint",)) for k in range(2)]
        self.log_temperature = {"log": in_double(state.params["log_temperature"])}
        self.rate, self.delay, self.updates = rate, delay, 0

    def draw(self, out, noise):
        mean, log_std = np.split(out, 2, axis=-1)
        action = np.tanh(mean + np.exp(log_std) * noise)
        density = np.exp(-0.5 * noise**2) / np.sqrt(2 * np.pi) / np.exp(log_std) / (1 - action**2)
        return action, np.sum(np.log(density), axis=-1)

    def update(self, items, weight, noise_next, noise_actor, target_entropy):
        old = np.exp(self.log_temperature["log"])
        next_action, log_prob = self.draw(self.actor(items["next_obs"]), noise_next)
        both = np.concatenate([items["obs"], items["action"]], axis=-1)
        joint = np.concatenate([both, np.concatenate([items["next_obs"], next_action], axis=-1)])
        frozen = [{}, {}]
        size = len(weight)
        q = np.array([critic(joint, True, own)[:, 0] for critic, own in zip(self.critics, frozen, strict=True)])
        target = items["reward"] + items["discount"] * (q[:, size:].min(axis=0) - old * log_prob)
        before = np.mean(weight * np.sum(0.5 * (target - q[:, :size]) ** 2, axis=0)), np.abs(target - q[:, :size])
        for critic, own in zip(self.critics, frozen, strict=True):
            loss = lambda critic=critic, own=own: np.mean(
                weight * 0.5 * (target - critic(joint, True, own)[:size, 0]) ** 2
            )
            descend(loss, critic.params, self.rate)
            critic.remember(own)
        self.updates += 1
        if self.updates % self.delay:
            return before[0], np.mean(before[1], axis=0)
        own = {}

        def actor_loss():
            action, log_prob = self.draw(self.actor(items["obs"], True, own), noise_actor)
            x = np.concatenate([items["obs"], action], axis=-1)
            least = np.min([critic(x)[:, 0] for critic in self.critics], axis=0)
            return np.mean(weight * (old * log_prob - least))

        _, log_prob = self.draw(self.actor(items["obs"], True, own), noise_actor)
        descend(actor_loss, self.actor.params, self.rate)
        self.actor.remember(own)
        slope = np.mean(weight * np.exp(self.log_temperature["log"]) * (-log_prob - target_entropy))
        self.log_temperature["log"] = self.log_temperature["log"] - self.rate * slope
        return before[0], np.mean(before[1], axis=0)
