"""Datasets of Minari for tests, written by hand in its format."""

import json

import numpy as np

BOX = {"type": "Box", "dtype": "float32", "shape": [1], "low": [-2.0], "high": [2.0]}
SEEN = {**BOX, "dtype": "float64", "shape": [3], "low": [-1.0, -1.0, -np.inf], "high": [1.0, 1.0, np.inf]}
PENDULUM = {"id": "Pendulum-v1", "kwargs": {"g": 9.81, "render_mode": None}, "max_episode_steps": 200}


def episode(steps, *, last=True, terminated=(), truncated=(), start=0.0, obs=None, actions=None):
    """An episode whose numbers tell its steps, flagged where it is said; without ``last``, no observation ends it."""
    times = start + np.arange(steps + last, dtype=np.float64)
    flags = [np.isin(np.arange(steps), at) for at in (terminated, truncated)]
    return {
        "observations": np.stack([times, -times, times / 2], axis=1) if obs is None else obs,
        "actions": np.linspace(-2, 2, steps, dtype=np.float32)[:, None] if actions is None else actions,
        "rewards": start + np.arange(steps, dtype=np.float64),
        "terminations": flags[0],
        "truncations": flags[1],
    }


def put(group, name, value):
    """An array, or a group of them as Minari names its members."""
    if isinstance(value, dict | tuple):
        parts = value.items() if isinstance(value, dict) else [(f"_index_{i}", x) for i, x in enumerate(value)]
        inner = group.require_group(name)
        for key, part in parts:
            put(inner, key, part)
    else:
        group.create_dataset(name, data=value, chunks=True, maxshape=(None, *value.shape[1:]))


def write(folder, episodes, observation_space=SEEN, action_space=BOX, spec=PENDULUM, **metadata):
    """A dataset in ``folder``; returns the path of its HDF5 file."""
    import h5py

    data = folder / "data"
    data.mkdir(parents=True)
    told = {"dataset_id": "tests/pendulum-v0", "data_format": "hdf5", "total_episodes": len(episodes)}
    texts = {"observation_space": observation_space, "action_space": action_space, "env_spec": spec}
    told |= {name: json.dumps(x) if isinstance(x, dict) else x for name, x in texts.items()}
    told |= {"ref_min_score": np.nan} | metadata
    (data / "metadata.json").write_text(json.dumps(told))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for number, each in enumerate(episodes):
            group = file.create_group(f"episode_{number}")
            group.attrs["total_steps"] = len(each["rewards"])
            for name, value in each.items():
                put(group, name, value)
    return data / "main_data.hdf5"
