"""Words between processes, which threads stand for here, and what those hear that are left."""

import functools
import os
import queue
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from purerl import channel, interrupts, processes
from purerl.errors import ConfigError
from purerl.runs.describing import run_directory

COUNT = 3


@pytest.fixture
def joined(monkeypatch):
    """The channels of three processes, and what each of them was ended by."""
    monkeypatch.setattr(channel, "GRACE", 0.2)  # so that nothing waits long
    server, address = channel.listen(["127.0.0.1"], "127.0.0.1")
    heard = [queue.SimpleQueue() for _ in range(COUNT)]
    callbacks = [lambda words, code, here=here: here.put((words, code)) for here in heard]
    with ThreadPoolExecutor(COUNT) as pool:
        first = pool.submit(channel.accepted, server, address, COUNT)
        others = [pool.submit(channel.connected, address, index) for index in range(1, COUNT)]
        peers = [result.result(10) for result in (first, *others)]
    yield [channel.Channel(index, COUNT, peers[index], callbacks[index]) for index in range(COUNT)], heard, peers
    for connection in (x for each in peers for x in each.values()):
        connection.close()


def at_once(*calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [result.result(10) for result in [pool.submit(call) for call in calls]]


def test_all_hear_what_all_say_in_order(joined):
    channels, _, _ = joined
    for turn in range(20):
        values = [{"index": index, "third": 1 / 3 + turn, "more": [None, "x"]} for index in range(COUNT)]
        result = at_once(*(functools.partial(channels[i].gathered, values[i]) for i in range(COUNT)))
        assert result == [values] * COUNT


@pytest.mark.parametrize("who", [0, 1])
def test_a_death_is_told(joined, who):
    _, heard, peers = joined
    for connection in peers[who].values():
        connection.shutdown(socket.SHUT_RDWR)
    beside = [0] if who else [1, 2]
    for index in beside:
        assert heard[index].get(timeout=5) == (f"process {who} of {COUNT} has died", channel.EXIT_LOST)


@pytest.mark.rest
@pytest.mark.parametrize("first", [True, False])
def test_a_failure_before_the_news_of_a_death_has_the_same_words(joined, first, tmp_path, monkeypatch, capsys):
    """A collective that fails because of a death may be noticed before the death is."""
    channels, _, peers = joined
    codes, run = [], tmp_path / "run"
    monkeypatch.setattr(channel, "NEWS_SECONDS", 1.0)  # so that nothing waits long
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(processes, "is_first", lambda: first)  # three threads stand for three processes
    monkeypatch.setattr(channels[0], "_ended", lambda words, code: interrupts.leave(code, words))
    channel.begin(channels[0])
    try:
        with pytest.raises(RuntimeError), run_directory.hold(run, []):
            (run / "checkpoints" / "0" / "1").mkdir(parents=True)
            (run / "checkpoints" / "0" / "1" / "card.json").touch()
            threading.Timer(0.2, peers[1][0].shutdown, [socket.SHUT_RDWR]).start()
            raise RuntimeError
    finally:
        channel.end()
    assert codes[0] == channel.EXIT_LOST
    assert capsys.readouterr().err == f"process 1 of {COUNT} has died; resume with: purerl resume {run}\n"


def test_an_end_is_told_with_its_code(joined):
    channels, heard, _ = joined
    threading.Thread(target=channels[1].close, args=(2,)).start()
    assert heard[0].get(timeout=5) == (f"process 1 of {COUNT} has ended with exit code 2", 2)


def test_a_good_bye_ends_nobody(joined):
    channels, heard, peers = joined
    at_once(*(lambda each=each: each.close(0) for each in channels))
    for connection in (x for each in peers for x in each.values()):
        connection.close()
    with pytest.raises(queue.Empty):
        heard[0].get(timeout=0.5)


def test_strangers_are_not_let_in():
    server, address = channel.listen(["127.0.0.1"], "127.0.0.1")
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(channel.accepted, server, address, 2)
        for data in (b"guess 1\n", b"\xff\n", f"{address.secret} 7\n".encode()):
            with socket.create_connection(("127.0.0.1", address.port)) as stranger:
                stranger.sendall(data)
                assert stranger.recv(1) == b""
        own = channel.connected(address, 1)
        assert list(result.result(10)) == [1]
    with own[0], result.result()[1]:
        pass


def test_who_cannot_be_reached_is_told(monkeypatch):
    monkeypatch.setattr(channel, "PATIENCE", 0.2)  # so that nothing waits long
    server, address = channel.listen(["127.0.0.1"])
    with pytest.raises(ConnectionError, match=r"processes \[1, 2\] have not connected to port"):
        channel.accepted(server, address, 3)
    with pytest.raises(ConnectionError, match="process 0 cannot be reached at 127.0.0.1, port"):
        channel.connected(address, 1)


@pytest.mark.parametrize("how", ["", "1234", "localhost,2,0", "localhost:1234,2", "a:b,1,0", ":1234,2,0", "a:1,2,-1"])
def test_what_joins_has_a_form(how):
    with pytest.raises(ConfigError, match="processes = .*must be auto, or ADDRESS,N,ID"):
        processes.check(how)


@pytest.mark.parametrize("how", ["a:0,2,0", "a:65536,2,0", "a:1234,2,2", "a:1234,0,0"])
def test_numbers_of_processes_have_ranges(how):
    with pytest.raises(ConfigError, match="the port must be"):
        processes.check(how)


def test_one_process_has_nobody_to_speak_to():
    processes.check("[::1]:1234,2,1")
    assert processes.gathered({"x": 1}) == [{"x": 1}] and processes.from_first(2.5) == 2.5 and processes.is_first()
