"""Mazes in which agents of `Maze-v0` are tested but never trained, and the shortest way through a maze.

The layouts are those of JaxUED (Coward et al. 2024, arXiv 2403.13091; github.com/DramaCow/jaxued,
``src/jaxued/environments/maze/level.py``), cell by cell.
"""

from collections import deque

import numpy as np

from purerl.envs.native.maze import FORWARD, LEFT, RIGHT, WAYS, Maze

WALL, GOAL, AGENT = "#", "*", ">v<^"
"""Their characters in a drawing.

The agent's is chosen by where it looks, in the order of `WAYS`. Other characters are free cells.
"""
DRAWN = {
    "SixteenRooms": """
        ---#--#--#---
        ->-------#---
        ---#--#------
        #-###-##-###-
        ---#---------
        ------#--#---
        ##-#-##-###-#
        ---#-----#---
        ---#--#------
        -####-##-#-##
        ---#--#--#---
        ------#----*-
        ---#-----#---
    """,
    "SixteenRooms2": """
        ---#-----#---
        ->----#--#---
        ---#--#--#---
        ####-##-###-#
        ---#--#------
        ------#--#---
        #-#####-#####
        ---#--#--#---
        ---#---------
        ##-##-##-####
        ---#--#--#---
        ------#----*-
        ---#--#--#---
    """,
    "Labyrinth": """
        -------------
        -###########-
        -#---------#-
        -#-#######-#-
        -#-#-----#-#-
        -#-#-###-#-#-
        -#-#-#*#-#-#-
        -#-#-#-#-#-#-
        -#---#---#-#-
        -#########-#-
        -----#-----#-
        ####-#-#####-
        >----#-------
    """,
    "LabyrinthFlipped": """
        -------------
        -###########-
        -#---------#-
        -#-#######-#-
        -#-#-----#-#-
        -#-#-###-#-#-
        -#-#-#*#-#-#-
        -#-#-#-#-#-#-
        -#-#---#---#-
        -#-#########-
        -#-----#-----
        -#####-#-####
        -------#----<
    """,
    "Labyrinth2": """
        >#-----------
        -#-#########-
        -#-#-------#-
        -#-#-#####-#-
        -#-#-#---#-#-
        ---#-#-#-#-#-
        ####-#*#-#-#-
        ---#-###-#-#-
        -#-#-----#-#-
        -#-#######-#-
        -#---------#-
        -###########-
        -------------
    """,
    "StandardMaze": """
        -----#>---#--
        -###-####-##-
        -#-----------
        -########-###
        --------#----
        ######-#####-
        ----#--#-----
        -##---##-####
        --#-#--#---#-
        #-#-##-###-#-
        #-#--#---#---
        #-##-###-###-
        ---#--*#-#---
    """,
    "StandardMaze2": """
        ---#-#----#--
        -#-#-####---#
        -#--------#--
        -########-###
        ---#--#-#-#-*
        ##-#-##-#-#--
        >#-#----#-##-
        -#-##-###--#-
        -#--#--###-#-
        -##-##-#-#-#-
        -#---#-#-#-#-
        -#-#-#-#-#-#-
        ---#---#-----
    """,
    "StandardMaze3": """
        --->#-#------
        -####-#-####-
        -#----#-#----
        ---####-#-#-#
        ##-#----#-#--
        ---#-##-#-##-
        -#-#-#--#--#*
        -#-#-#-###-##
        -#---#-#-#---
        -###-#-#-###-
        -#---#-#---#-
        -#-###-#-#-#-
        -#---#---#---
    """,
}
"""The held-out mazes, of 13 x 13 cells, by name."""


def held_out() -> dict[str, Maze]:
    """Returns the mazes of `DRAWN` by name, as levels of numpy arrays."""
    return {name: read(drawn) for name, drawn in DRAWN.items()}


def read(drawn: str) -> Maze:
    """Reads a maze from a drawing with a line for each row, around which blanks do not matter.

    Raises:
        ValueError: If rows differ in length or if there is not one goal and one agent.
    """
    cells = np.array([list(row) for row in drawn.split()])  # numpy raises ValueError for rows of different lengths
    (goal,) = np.argwhere(cells == GOAL)
    (place,) = np.argwhere(np.isin(cells, list(AGENT)))
    direction = AGENT.index(cells[tuple(place)])
    return Maze(cells == WALL, goal.astype(np.int32), place.astype(np.int32), np.int32(direction))


def shortest_path(level: Maze) -> list[int] | None:
    """Finds the fewest actions of `Maze-v0` that lead to the goal of a level of numpy arrays; None: there is no way."""
    walls = np.pad(np.asarray(level.walls), 1, constant_values=True)
    goal = tuple(int(x) + 1 for x in level.goal)
    start = (*(int(x) + 1 for x in level.place), int(level.direction))
    actions: dict[tuple[int, ...], list[int]] = {start: []}
    waiting = deque([start])
    while waiting:
        now = waiting.popleft()
        row, column, direction = now
        if (row, column) == goal:
            return actions[now]
        ahead = row + int(WAYS[direction, 0]), column + int(WAYS[direction, 1]), direction
        turned = {LEFT: (row, column, (direction - 1) % 4), RIGHT: (row, column, (direction + 1) % 4)}
        for action, after in {**turned, FORWARD: ahead}.items():
            if after not in actions and not walls[after[:2]]:
                actions[after] = [*actions[now], action]
                waiting.append(after)
    return None
