"""Searches by hand in numpy float64, a recursion over nodes, on games that are tables.

Values of nodes are those for agent 0, whoever moves, so that no factor -1 of the library's kind appears: only what a
mover prefers has its sign. Danihelka et al. 2022 for Gumbel MuZero; Schrittwieser et al. 2020, appendix B, for PUCT.
"""

import numpy as np

C_VISIT = 50
"""Of Danihelka et al. 2022, eq. 8."""
C1, C2 = 1.25, 19652
"""Of Schrittwieser et al. 2020, eq. 2."""


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


class Node:
    """A position of ``game`` that was reached, and the returns ``[N]`` for agent 0 of all simulations that came by."""

    def __init__(self, game, place):
        mover = game.mover[place]
        self.game, self.place, self.sign = game, place, (1, -1)[mover]
        self.over = game.terminated[place] or game.truncated[place]
        self.legal = game.legal[place]
        self.prior = softmax(np.where(self.legal, game.logits[place, mover].astype(float), -np.inf))
        with np.errstate(divide="ignore"):
            self.logits = np.log(self.prior)
        self.guess = 0.0 if game.terminated[place] else self.sign * float(game.value[place, mover])
        self.returns, self.children = [self.guess], {}

    @property
    def value(self):
        """For the mover."""
        return self.sign * np.mean(self.returns)

    @property
    def visits(self):
        return np.array([len(self.children[a].returns) if a in self.children else 0 for a in range(len(self.legal))])

    @property
    def q(self):
        """For the mover; nan where nothing was tried."""
        result = np.full(len(self.legal), np.nan)
        for a, child in self.children.items():
            result[a] = self.sign * (self.game.reward[self.place, a] + self.game.gamma * np.mean(child.returns))
        return result

    def simulate(self, choose, deeper):
        """Goes down by ``choose`` here and ``deeper`` below; returns what it is worth for agent 0."""
        worth = self.guess
        if not self.over:
            action = choose(self)
            assert self.legal[action]
            if action in self.children:
                following = self.children[action].simulate(deeper, deeper)
            else:
                self.children[action] = Node(self.game, self.game.child[self.place, action])
                following = self.children[action].guess
            worth = self.game.reward[self.place, action] + self.game.gamma * following
        self.returns.append(worth)
        return worth


def scaled_values(node, scale):
    """``sigma`` of the completed values (eqs. 8, 10 and appendix D), ``scale`` being ``(c_scale, rescaled)``: whether 0
    is the least and 1 the largest."""
    q, visits = node.q, node.visits
    tried, total = visits > 0, np.sum(visits)
    mixed = node.sign * node.guess
    if total:
        mixed = (mixed + total * np.sum((node.prior * q)[tried]) / np.sum(node.prior[tried])) / (1 + total)
    q = np.where(tried, q, mixed)
    c_scale, rescaled = scale
    q = (q - np.min(q)) / max(np.ptp(q), 1e-8) if rescaled else q
    return (C_VISIT + np.max(visits)) * c_scale * q


def levels_of_halving(considered, simulations):
    """How often an action must have been tried to be tried next, for each simulation (sequential halving)."""
    rounds, levels, level, left = max(int(np.ceil(np.log2(considered))), 1), [], 0, considered
    while len(levels) < simulations:
        for _ in range(max(1, simulations // (rounds * left))):
            levels += [level] * left
            level += 1
        left = max(2, left // 2) if considered > 1 else 1
    return levels[:simulations]


def seen_by_the_other(game, place):
    """A root that is begun from the view of the agent that waits, who knows nothing of what is legal."""
    root = Node(game, place)
    root.legal, waits = np.ones_like(root.legal), 1 - game.mover[place]
    root.logits = game.logits[place, waits].astype(float)
    root.prior, root.guess = softmax(root.logits), -root.sign * float(game.value[place, waits])
    return root


def gumbel(root, simulations, considered, scale, noise):
    """The policy ``[A]``, visits ``[A]``, value of the root for its mover, and action of Gumbel MuZero.

    The value is the policy's over actions that were tried.
    """
    levels = levels_of_halving(min(considered, int(np.sum(root.legal))), simulations)

    def best(level):
        score = noise + root.logits + scaled_values(root, scale)
        return int(np.argmax(np.where(root.legal & (root.visits == level), score, -np.inf)))

    def deeper(node):
        wanted = softmax(node.logits + scaled_values(node, scale))
        return int(np.argmax(wanted - node.visits / (1 + np.sum(node.visits))))

    for level in levels:
        root.simulate(lambda node, level=level: best(level), deeper)
    policy, tried = softmax(root.logits + scaled_values(root, scale)), root.visits > 0
    value = np.sum((policy * root.q)[tried]) / np.sum(policy[tried])
    return policy, root.visits, value, best(np.max(root.visits))


def puct(game, place, simulations):
    """The shares of visits ``[A]``, visits ``[A]`` and value of the root for its mover.

    A node's visits include the one that made it.
    """

    def choose(node):
        q, tried, count = node.q, node.visits > 0, len(node.returns)
        known = np.append(q[tried], node.value)
        q = np.where(tried, (q - np.min(known)) / max(np.ptp(known), 1e-8), 0.0)
        bonus = node.prior * np.sqrt(count) / (1 + node.visits) * (C1 + np.log((count + C2 + 1) / C2))
        return int(np.argmax(np.where(node.legal, q + bonus, -np.inf)))

    root = Node(game, place)
    for _ in range(simulations):
        root.simulate(choose, choose)
    return root.visits / simulations, root.visits, root.value
