"""DiscoRL's update in plain numpy float64, step by step and action by action, from its description: what the batched
float32 program is compared with. `scripts/discovered.py` compares it with numbers of the authors' own code."""

import numpy as np

BASE = "lstm"
LIFE = "lstm/~/meta_lstm/~unroll"


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def signed_log(x):
    return np.sign(x) * np.log(1 + abs(x))


def compress(x):
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 0.001 * x


def expand(x):
    """The inverse of `compress`, by the quadratic formula."""
    e = 0.001
    root = (np.sqrt(1 + 4 * e * (abs(x) + 1 + e)) - 1) / (2 * e)
    return np.sign(x) * (root**2 - 1)


def expected(logits):
    """The value of one action, whose bins are the whole numbers around 0."""
    half = (len(logits) - 1) // 2
    return expand(sum(p * k for p, k in zip(softmax(logits), range(-half, half + 1), strict=True)))


class Oracle:
    """The rule with its 42 arrays. An update is told in a dictionary: of ``T`` steps and ``N`` sequences ``action``,
    ``reward``, ``terminated``, ``last``, ``cut``, ``known`` ``[T, N]``, ``behaviour`` ``[T, N, A]``, and rows ``R = T +
    2`` of ``policy``, ``y``, ``z``, ``q``, ``following`` and, with ``target_`` before them, of the target network's
    first four.
    """

    def __init__(self, arrays):
        self.arrays = {name: np.asarray(x, np.float64) for name, x in arrays.items()}

    def linear(self, name, x):
        w = self.arrays[f"{name}/w"]
        return x @ w.reshape(w.shape[-2:]) + self.arrays[f"{name}/b"]

    def number(self, name, logits):
        """One number of a prediction of 600."""
        hidden = np.maximum(self.linear(f"{name}/~/linear_0", softmax(logits)), 0)
        return self.linear(f"{name}/~/linear_1", hidden)[0]

    def over_actions(self, name, each):
        mean = np.mean(each, axis=0)
        return np.array([np.maximum(self.linear(name, np.concatenate([x, mean])), 0) for x in each])

    def lstm(self, name, x, h, c):
        i, g, f, o = np.split(self.linear(f"{name}/linear", np.concatenate([x, h])), 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    @staticmethod
    def after(u, t, n):
        """The row that follows a step, or its own if nobody knows what did."""
        if u["cut"][t, n]:
            return len(u["policy"]) - 1
        return t + 1 if u["known"][t, n] else t

    def features(self, place, u, value, t, n):
        """The 27 numbers of a step, and two of each action there."""
        a, after = u["action"][t, n], self.after(u, t, n)
        rows, actions = (t, after), range(u["policy"].shape[-1])
        pi = {row: softmax(u["policy"][row, n]) for row in rows}
        mu, aim = softmax(u["behaviour"][t, n]), softmax(u["target_policy"][t, n])
        z, target_z = (
            {row: np.array([self.number(f"{place}/mlp_1", u[name][row, n, b]) for b in actions]) for row in rows}
            for name in ("z", "target_z")
        )
        each = [
            [pi[t][b], mu[b], aim[b], z[t][b], target_z[t][b], signed_log(value["target_q"][t, n, b])]
            + [signed_log(value["advantages"][t, n, b]), value["scaled_advantages"][t, n, b], float(a == b)]
            for b in actions
        ]
        hidden = self.over_actions(f"{place}/sequential/conv1_d", np.array(each))
        made = self.over_actions(f"{place}/sequential/conv1_d_1", hidden)
        x = [pi[t][a], mu[a], signed_log(u["reward"][t, n]), 1 - float(u["terminated"][t, n])]
        x += [signed_log(value["value"][row, n]) for row in rows]
        x += [signed_log(value["advantage"][t, n]), value["scaled_advantage"][t, n], aim[a]]
        x += [self.number(f"{place}/mlp", u[name][row, n]) for name in ("y", "target_y") for row in rows]
        for logits in (z, target_z):
            x += [logits[t][a], *(pi[row] @ logits[row] for row in rows), *(logits[row].max() for row in rows)]
        return np.concatenate([x, made.mean(axis=0), made[a]]), made

    def values(self, u, moments, gamma, trace_lambda):
        """Retrace from the last step to the first, and advantages scaled by their moments with these ones."""
        rows, count, actions = u["policy"].shape
        steps = rows - 2
        q, target_q = (
            np.array([[[expected(x) for x in each] for each in row] for row in u[name]]) for name in ("q", "target_q")
        )
        pi = np.array([[softmax(x) for x in row] for row in u["policy"]])
        v, target_v = (pi * q).sum(-1), (pi * target_q).sum(-1)
        returns = np.zeros((steps, count))
        for n in range(count):
            for t in reversed(range(steps)):
                a, discount = u["action"][t, n], gamma * (1 - float(u["terminated"][t, n]))
                truncated = u["last"][t, n] and not u["terminated"][t, n]
                if truncated and not u["cut"][t, n]:
                    returns[t, n] = target_q[t, n, a]
                    continue
                following = target_v[self.after(u, t, n), n]
                if not truncated and t + 1 < steps:
                    b = u["action"][t + 1, n]
                    ratio = pi[t + 1, n, b] / softmax(u["behaviour"][t + 1, n])[b]
                    following += trace_lambda * min(1, ratio) * (returns[t + 1, n] - target_q[t + 1, n, b])
                returns[t, n] = u["reward"][t, n] + discount * following
        advantage = returns - target_v[:-2]
        advantages = (target_q - target_v[..., None])[:-2]
        moments = self.moments(moments, advantage[u["known"]])
        mean = moments[0] / (1 - moments[2])
        deviation = np.sqrt(max(moments[1] / (1 - moments[2]) - mean**2, 0) + 1e-12) + 1e-6
        taken = np.take_along_axis(q[:-2], u["action"][..., None], axis=-1)[..., 0]
        results = {"value": v, "target_q": target_q[:-2], "advantages": advantages, "returns": returns}
        results |= {"advantage": advantage, "td_error": returns - taken}
        results |= {
            "scaled_advantage": (advantage - mean) / deviation,
            "scaled_advantages": (advantages - mean) / deviation,
        }
        return results, moments

    @staticmethod
    def moments(moments, x):
        return tuple(0.99 * old + 0.01 * new for old, new in zip(moments, (x.mean(), (x**2).mean(), 0.0), strict=True))

    def targets(self, u, value, h, c):
        """Logits that the policy, ``y`` and ``z`` should have had, and the state of the LSTM over updates."""
        steps, count = u["reward"].shape
        policy, y, z = {}, {}, {}
        factor, projected = self.linear("lstm/linear", h), []
        for n in range(count):
            inner = np.zeros(256), np.zeros(256)
            for t in reversed(range(steps)):
                if u["last"][t, n]:
                    inner = np.zeros(256), np.zeros(256)
                x, made = self.features(BASE, u, value, t, n)
                inner = self.lstm("lstm/lstm", x, *inner)
                out = inner[0] * factor
                y[t, n], z[t, n] = self.linear("lstm/linear_2", out), self.linear("lstm/linear_3", out)
                beside = np.array([np.concatenate([out, each]) for each in made])
                policy[t, n] = self.linear("lstm/linear_4", self.over_actions("lstm/sequential_1/conv1_d", beside))[
                    :, 0
                ]
                if u["known"][t, n]:
                    x = self.features(LIFE, u, value, t, n)[0]
                    more = [self.linear("lstm/linear_1", out)[0], self.number(f"{LIFE}/mlp", y[t, n])]
                    projected.append(self.linear(f"{LIFE}/mlp_2/~/linear_0", np.concatenate([x, more])))
        stacked = (np.array([[x[t, n] for n in range(count)] for t in range(steps)]) for x in (policy, y, z))
        return tuple(stacked), self.lstm(f"{LIFE}/lstm", np.mean(projected, axis=0), h, c)

    def losses(self, u, value, targets):
        """The five terms of each step's loss, by their names in the program's metrics; the values' without its
        weight."""
        steps, count = u["reward"].shape
        results = {name: np.zeros((steps, count)) for name in ("policy", "y", "z", "following", "value")}

        def divergence(target, logits):
            p, q = softmax(target), softmax(logits)
            return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)

        for t in range(steps):
            for n in range(count):
                a, after = u["action"][t, n], self.after(u, t, n)
                results["policy"][t, n] = divergence(targets[0][t, n], u["policy"][t, n])
                results["y"][t, n] = divergence(targets[1][t, n], u["y"][t, n])
                results["z"][t, n] = divergence(targets[2][t, n], u["z"][t, n, a])
                if not u["terminated"][t, n]:
                    results["following"][t, n] = divergence(u["policy"][after, n], u["following"][t, n, a])
                logits = u["q"][t, n, a]
                place = compress(value["returns"][t, n]) + (len(logits) - 1) / 2
                low, log_p = int(np.floor(place)), np.log(softmax(logits))
                results["value"][t, n] = -(1 + low - place) * log_p[low] - (place - low) * log_p[low + 1]
        return results
