"""Rows pass from stage to stage whole, and an end of either side shows at the other."""

import threading

import pytest
import torch

from baton.engine.activation_pipe import ActivationSink, ActivationSource, open_pipe
from baton.engine.plain import Activations

WIDTH = 64


@pytest.fixture
def ends():
    read_end, write_end = open_pipe()
    return ActivationSource(read_end, WIDTH, "float32"), ActivationSink(write_end)


@pytest.mark.parametrize("num_rows", [1, 6, 9000])
def test_rows_arrive_bit_for_bit_however_many(ends, num_rows):
    """9000 rows are more than four times what the pipe holds."""
    source, sink = ends
    sent = Activations(torch.randn(num_rows, WIDTH), torch.randn(num_rows, WIDTH))
    sending = threading.Thread(target=sink.send, args=(sent,))
    sending.start()
    got = source.receive()
    sending.join(10)
    assert got is not None and got.delta is not None and sent.delta is not None
    assert torch.equal(got.x, sent.x) and torch.equal(got.delta, sent.delta)


def test_a_step_that_failed_passes_no_rows_and_the_next_one_does(ends):
    source, sink = ends
    sink.fail()
    assert source.receive() is None
    rows = torch.ones(2, WIDTH)
    sink.send(Activations(rows, rows))
    assert source.receive() is not None


def test_the_end_of_a_stage_shows_at_the_other(ends):
    source, sink = ends
    rows = torch.ones(2, WIDTH)
    sink.send(Activations(rows, rows))
    sink.close()
    assert source.receive() is not None
    with pytest.raises(EOFError, match="the stage before has ended"):
        source.receive()


def test_rows_for_a_stage_that_is_gone_are_an_error(ends):
    source, sink = ends
    source.close()
    with pytest.raises(BrokenPipeError):
        sink.fail()
