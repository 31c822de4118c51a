"""Phases of a request from trace files: they tile its time, failed attempts included."""

import json

from baton.bench.race.phases import mean_phases, read_phases


def write(folder, place, *events):
    with (folder / f"{place}.jsonl").open("a") as file:
        for at_us, name, generation in events:
            line = {"at_us": at_us, "place": place, "name": name, "request_id": "r"}
            file.write(json.dumps({**line, "generation": generation, "data": {}}) + "\n")


def test_phases_of_a_split_request_tile_its_time(tmp_path):
    write(tmp_path, "router", (100, "arrived", 0), (110, "routed", 1), (990, "ended", 1))
    write(tmp_path, "prefill-0", (150, "prefill_queued", 1), (400, "prefill_done", 1))
    write(tmp_path, "decode-0", (425, "admitted", 1), (925, "finished", 1))
    (one,) = read_phases(tmp_path)
    assert (one.route_us, one.prefill_us, one.exposed_us, one.decode_us) == (50, 250, 25, 500)
    assert one.lost_us == 0 and one.total_us == 925 - 100


def test_time_lost_to_a_failed_attempt_is_its_own_phase(tmp_path):
    write(tmp_path, "router", (0, "arrived", 0), (10, "routed", 1), (60, "attempt_failed", 1))
    write(tmp_path, "router", (70, "routed", 2))
    write(tmp_path, "prefill-0", (20, "prefill_queued", 1), (90, "prefill_queued", 2))
    write(tmp_path, "prefill-0", (190, "prefill_done", 2))
    write(tmp_path, "decode-0", (200, "admitted", 2), (300, "finished", 2))
    (one,) = read_phases(tmp_path)
    assert (one.lost_us, one.route_us, one.num_failures) == (60, 30, 1)
    assert one.total_us == 300
    assert mean_phases([one]).failures_per_request == 1


def test_unfinished_and_earlier_requests_and_torn_lines_are_left_out(tmp_path):
    write(tmp_path, "router", (100, "arrived", 0), (110, "routed", 1))
    with (tmp_path / "router.jsonl").open("a") as file:
        file.write('{"at_us": 3, "na')
    assert read_phases(tmp_path) == []
    write(tmp_path, "mixed-0", (150, "prefill_queued", 1), (400, "prefill_done", 1))
    write(tmp_path, "mixed-0", (400, "admitted", 1), (925, "finished", 1))
    assert len(read_phases(tmp_path)) == 1
    assert read_phases(tmp_path, since_us=101) == []
