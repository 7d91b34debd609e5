"""A plain loop over two copies, without purerl; with an argument one of them is not closed."""

import sys

from ten import Ten

if __name__ == "__main__":
    for i in range(2):
        env = Ten()
        env.reset(seed=i)
        while not env.step(0)[3]:
            pass
        if not (i and sys.argv[1:]):
            env.close()
    print("looped")
