"""Formulas from their definitions: explicit sums and products in numpy float64, written without recurrences."""

import numpy as np


def _end(last, t):
    """The step at which the episode of step ``t`` ends, or the trajectory's last step."""
    return next((k for k in range(t, len(last)) if last[k]), len(last) - 1)


def gae(reward, value, next_value, discount, last, lam):
    """Schulman et al. 2016, eq. 16: the sum of discounted temporal-difference errors."""
    delta = reward + discount * next_value - value
    return np.array(
        [
            sum(np.prod(discount[t:k]) * lam ** (k - t) * delta[k] for k in range(t, _end(last, t) + 1))
            for t in range(len(reward))
        ]
    )


def n_step(reward, next_value, discount, last, n):
    """Sutton & Barto 2018, eq. 7.1: at most ``n`` rewards, and the value of where they led."""
    totals = []
    for t in range(len(reward)):
        end = min(t + n - 1, _end(last, t))
        rewards = sum(np.prod(discount[t:k]) * reward[k] for k in range(t, end + 1))
        totals.append(rewards + np.prod(discount[t : end + 1]) * next_value[end])
    return np.array(totals)


def stored_n_step(reward, value, discount, stop, stopped, n):
    """At most ``n`` rewards, of steps before the next that stops and before the last, and then either the value or, if
    it is within ``n - 1`` steps, what that one returns."""
    totals = []
    for t in range(len(reward)):
        end = min(t + n, _end(stop, t))
        rewards = sum(np.prod(discount[t:k]) * reward[k] for k in range(t, end))
        totals.append(rewards + np.prod(discount[t:end]) * (value if end == t + n else stopped)[end])
    return np.array(totals)


def lambda_returns(reward, next_value, discount, last, lam):
    """Sutton & Barto 2018, eq. 12.3: the weighted mean of all n-step returns, the longest taking what is left."""
    totals = []
    for t in range(len(reward)):
        longest = _end(last, t) - t + 1
        by_n = [n_step(reward, next_value, discount, last, n)[t] for n in range(1, longest + 1)]
        weights = [(1 - lam) * lam ** (n - 1) for n in range(1, longest)] + [lam ** (longest - 1)]
        totals.append(np.dot(weights, by_n))
    return np.array(totals)


def vtrace(log_ratio, reward, value, next_value, discount, last, lam, rho_bar, c_bar):
    """Espeholt et al. 2018, eq. 1, and the advantage of section 4.2."""
    ratio = np.exp(log_ratio)
    rho, c = np.minimum(rho_bar, ratio), lam * np.minimum(c_bar, ratio)
    delta = rho * (reward + discount * next_value - value)
    target = value + np.array(
        [
            sum(np.prod(discount[t:k]) * np.prod(c[t:k]) * delta[k] for k in range(t, _end(last, t) + 1))
            for t in range(len(reward))
        ]
    )
    following = [
        next_value[t] if t == _end(last, t) else target[t + 1] + next_value[t] - value[t + 1]
        for t in range(len(reward))
    ]
    return rho * (reward + discount * np.array(following) - value), target


def retrace(log_ratio, reward, q_value, next_value, discount, last, lam):
    """Munos et al. 2016, eq. 3 with the traces of eq. 4 (retrace)."""
    c = lam * np.minimum(1.0, np.exp(log_ratio))
    delta = reward + discount * next_value - q_value
    return q_value + np.array(
        [
            sum(np.prod(discount[t:k]) * np.prod(c[t + 1 : k + 1]) * delta[k] for k in range(t, _end(last, t) + 1))
            for t in range(len(reward))
        ]
    )


def stored_retrace(trace, reward, q_value, value, discount, stop, stopped):
    """The same, of rows of which the next is the next step but where one stops, which is worth what is said there."""
    total = []
    for t in range(len(reward)):
        end = _end(stop, t)
        delta = [reward[k] + discount[k] * value[k + 1] - q_value[k] for k in range(t, end)] + [
            stopped[end] - q_value[end]
        ]
        weights = [np.prod(discount[t:k]) * np.prod(trace[t + 1 : k + 1]) for k in range(t, end + 1)]
        total.append(q_value[t] + np.dot(weights, delta))
    return np.array(total)


def episodic_bonus(memory, x, num, mean, epsilon, cluster):
    """Badia et al. 2020 (Never Give Up), Algorithm 1, of a list of embeddings; ``mean`` of squared distances."""
    distances = sorted(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for y in memory)[:num]
    similar = [epsilon / (max(d / mean - cluster, 0) + epsilon) for d in distances]
    similar += [epsilon] * (num - len(similar))
    s = sum(similar) ** 0.5 + 1e-3
    return 0.0 if s > 8 else 1 / s


def softmax(x):
    return np.exp(x - np.max(x)) / np.sum(np.exp(x - np.max(x)))


def munchausen(q, target_q, action, reward, discount, next_q, alpha, temperature, floor):
    """Vieillard et al. 2020, eq. 1: the sum over the next action, with the log-policy in the reward clipped."""
    policy, next_policy = softmax(target_q / temperature), softmax(next_q / temperature)
    bonus = min(max(temperature * np.log(policy[action]), floor), 0)
    soft = sum(p * (value - temperature * np.log(p)) for p, value in zip(next_policy, next_q, strict=True))
    return reward + alpha * bonus + discount * soft - q[action]


def project(values, probabilities, support):
    """Bellemare et al. 2017, eq. 7: each atom gathers under a hat as wide as the gaps beside it."""
    gap = (support[-1] - support[0]) / (len(support) - 1)
    inside = np.minimum(np.maximum(values, support[0]), support[-1])
    return np.array(
        [
            sum(p * max(0, 1 - abs(value - atom) / gap) for value, p in zip(inside, probabilities, strict=True))
            for atom in support
        ]
    )


def quantile_huber(quantiles, taus, targets, kappa):
    """Dabney et al. 2018, eq. 10: quantile by quantile, target by target, of one action."""
    total = 0
    for quantile, tau in zip(quantiles, taus, strict=True):
        for target in targets:
            delta = target - quantile
            size = 0.5 * delta**2 if abs(delta) <= kappa else kappa * (abs(delta) - 0.5 * kappa)
            total += abs(tau - (delta < 0)) * size / kappa / len(targets)
    return total


class Adam:
    """Adam of numbers in a vector, after a clip of the gradient's length (Kingma & Ba 2015, algorithm 1)."""

    def __init__(self, rate, epsilon, longest):
        self.rate, self.epsilon, self.longest = rate, epsilon, longest
        self.count, self.mean, self.square = 0, 0.0, 0.0

    def step(self, gradient):
        """What is added to the parameters."""
        gradient = np.asarray(gradient) * min(1.0, self.longest / np.linalg.norm(gradient))
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean, square = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.999**self.count)
        return -self.rate * mean / (np.sqrt(square) + self.epsilon)


class Duals:
    """The temperature and the multipliers of MPO and V-MPO: softplus of numbers that Adam moves down their duals."""

    def __init__(self, temperature, multipliers, e_step_kl, bounds, adam):
        self.raw = np.log(np.expm1(np.array([temperature, *multipliers])))
        self.e_step_kl, self.bounds, self.adam = e_step_kl, np.array(bounds), adam

    @property
    def values(self):
        return np.log1p(np.exp(self.raw))

    def weights(self, values, prior):
        """Of the E-step ``[N, A]``."""
        weights = prior * np.exp((values - values.max(axis=-1, keepdims=True)) / self.values[0])
        return weights / weights.sum(axis=-1, keepdims=True)

    def step(self, values, prior, weight, divergence):
        """By ``d/dT T (bound + log sum p exp(v / T)) = bound + log sum p exp(v / T) - sum w v / T``."""
        temperature, scaled = self.values[0], values / self.values[0]
        slope = self.e_step_kl + np.log(np.sum(prior * np.exp(scaled), axis=-1))
        slope = slope - np.sum(self.weights(values, prior) * scaled, axis=-1)
        gradient = np.array([np.mean(weight * slope), *(self.bounds * np.mean(weight) - divergence)])
        assert temperature > 0
        self.raw = self.raw + self.adam.step(gradient / (1 + np.exp(-self.raw)))
