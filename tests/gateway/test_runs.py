"""Runs over HTTP: looking, waiting, stopping, and who goes first."""

import asyncio

from tests.gateway.house import House, play, until


def test_waiting_gives_the_outcome_when_the_run_ends() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "hello")
        told = await home.ask("GET", f"/v1/runs/{run}/wait?timeout_s=10")
        assert told.status == 200
        assert told.json["state"] == "ended"
        outcome = told.json["outcome"]
        assert (outcome["kind"], outcome["reason"]) == ("completed", "end_turn")
        again = await home.ask("GET", f"/v1/runs/{run}/wait?timeout_s=0")
        assert (again.status, again.json["outcome"]) == (200, outcome)

    play(scene)


def test_a_wait_that_is_over_before_the_run_says_so_and_changes_nothing() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall")
        told = await home.ask("GET", f"/v1/runs/{run}/wait?timeout_s=0.05")
        assert (told.status, told.json["outcome"]) == (202, None)
        assert told.json["state"] in ("queued", "running")

    play(scene)


def test_a_run_that_is_not_there_is_not_waited_for() -> None:
    async def scene(home: House) -> None:
        for path in ("/v1/runs/r_nope", "/v1/runs/r_nope/wait", "/v1/runs/r_nope/stop"):
            method = "POST" if path.endswith("stop") else "GET"
            told = await home.ask(method, path)
            assert (told.status, told.json["code"]) == (404, "TK-503"), path

    play(scene)


def test_who_leaves_while_waiting_is_let_go_of() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall")
        _, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(f"GET /v1/runs/{run}/wait HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await until(lambda: home.gate.watchers == 1)
        writer.close()
        await until(lambda: home.gate.watchers == 0)

    play(scene)


def test_a_running_run_tells_its_phase_and_its_clocks() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall")
        await home.until_phase(run, "waiting")
        seen = await home.get(f"/v1/runs/{run}")
        assert seen["state"] == "running"
        assert "first_output" in {clock["clock"] for clock in seen["clocks"]}
        assert (await home.get("/v1/sessions/a"))["running"] == run

    play(scene)


def test_a_stop_ends_the_run_as_stopped_and_can_be_said_again() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall")
        await home.until_phase(run, "waiting")
        first = await home.ask("POST", f"/v1/runs/{run}/stop", {"by": "ann"})
        assert (first.status, first.json) == (
            200,
            {"run": run, "state": "stopping", "changed": True},
        )
        outcome = await home.ended(run)
        assert (outcome["kind"], outcome["reason"], outcome["code"]) == (
            "cancelled", "stopped", "TK-301",
        )  # fmt: skip
        assert outcome["evidence"]["by"] == "ann"
        again = await home.ask("POST", f"/v1/runs/{run}/stop")
        assert again.json == {"run": run, "state": "ended", "changed": False}
        assert await home.ended(run) == outcome

    play(scene)


def test_stopping_a_run_with_three_behind_it_ends_that_one_and_the_three_run_in_order() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        first = await home.send("a", "stall")
        await home.until_phase(first, "waiting")
        behind = [await home.send("a", f"number {n}") for n in range(3)]
        queued = await home.get("/v1/runs?state=queued")
        assert {item["id"] for item in queued["items"]} == set(behind)
        assert (await home.ask("POST", f"/v1/runs/{first}/stop")).json["changed"]
        assert (await home.ended(first))["kind"] == "cancelled"
        for run in behind:
            assert (await home.ended(run))["kind"] == "completed"
        log = await home.log("a")
        started = [event["run"] for event in log if event["kind"] == "run.started"]
        ended = [event["run"] for event in log if event["kind"] == "run.ended"]
        assert started == ended == [first, *behind]

    play(scene)


def test_a_queued_run_can_be_stopped_and_the_others_keep_their_places() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        first = await home.send("a", "stall")
        one, two = await home.send("a", "one"), await home.send("a", "two")
        stopped = await home.ask("POST", f"/v1/runs/{one}/stop")
        assert (await home.ended(one))["kind"] == "cancelled"
        assert stopped.json["state"] == "ended"
        await home.ask("POST", f"/v1/runs/{first}/stop")
        assert (await home.ended(two))["kind"] == "completed"

    play(scene)


def test_people_go_before_background_work_which_is_then_done_after_all() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        work = await home.send("a", "slow start 2", priority="background")
        await home.until_phase(work, "waiting")
        people = [await home.send("a", f"person {n}") for n in range(2)]
        for run in people:
            assert (await home.ended(run))["kind"] == "completed"
        preempted = await home.ended(work)
        assert (preempted["kind"], preempted["reason"]) == ("cancelled", "preempted")
        successor = (await home.get(f"/v1/runs/{work}"))["successor"]
        assert (await home.ended(successor))["kind"] == "completed"
        log = await home.log("a")
        ended = [event["run"] for event in log if event["kind"] == "run.ended"]
        assert ended == [work, *people, successor]

    play(scene)


def test_a_hundred_messages_run_in_the_order_in_which_they_came() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        runs = [await home.send("a", "refuse") for _ in range(100)]
        await home.ended(runs[-1])
        log = await home.log("a")
        assert [event["run"] for event in log if event["kind"] == "run.started"] == runs

    play(scene)


def test_runs_are_listed_and_filtered() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        await home.session("b")
        good, bad = await home.send("a", "hello"), await home.send("b", "fail")
        await home.ended(good)
        await home.ended(bad)
        running = await home.send("a", "stall")
        by_query = {
            "state=unfinished": [running],
            "session=b": [bad],
            "outcome=failed": [bad],
            "outcome=completed&agent=demo": [good],
            "reason=agent_error": [bad],
            "parent=nobody": [],
        }
        for query, wanted in by_query.items():
            found = (await home.get(f"/v1/runs?{query}"))["items"]
            assert [item["id"] for item in found] == wanted, query

    play(scene)


def test_a_deadline_given_with_the_message_is_kept() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall", deadline_s=0.1)
        outcome = await home.ended(run)
        assert (outcome["kind"], outcome["reason"]) == ("timed_out", "deadline")

    play(scene)


# Approvals and agents ------------------------------------------------------------------------


def test_a_question_is_listed_answered_once_and_then_settled() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "ask")
        await home.until_phase(run, "approval")
        asked = (await home.get("/v1/approvals?state=open"))["items"]
        assert [(item["run"], item["tool"]) for item in asked] == [(run, "delete")]
        path = f"/v1/approvals/{asked[0]['id']}"
        told = await home.ask("POST", path, {"decision": "allow", "note": "go on", "by": "ann"})
        assert (told.status, told.json["state"], told.json["by"]) == (200, "allowed", "ann")
        late = await home.ask("POST", path, {"decision": "deny"})
        assert (late.status, late.json["code"]) == (409, "TK-507")
        assert (await home.ended(run))["kind"] == "completed"
        assert (await home.get(path))["state"] == "allowed"
        assert (await home.get("/v1/approvals?state=open"))["items"] == []

    play(scene)


def test_a_question_that_is_not_there_is_refused() -> None:
    async def scene(home: House) -> None:
        for id in ("a_nope.1", "nonsense"):
            told = await home.ask("POST", f"/v1/approvals/{id}", {"decision": "deny"})
            assert (told.status, told.json["code"]) == (404, "TK-504")
            assert (await home.ask("GET", f"/v1/approvals/{id}")).status == 404

    play(scene)


def test_the_agents_are_listed_with_what_they_can() -> None:
    async def scene(home: House) -> None:
        (agent,) = (await home.get("/v1/agents"))["items"]
        assert (agent["name"], agent["driver"]) == ("demo", "a demo")
        assert agent["abilities"]["approvals"] is True

    play(scene, drivers={"demo": "a demo"})


def test_a_list_tells_phases_and_clocks_like_a_look_does() -> None:
    async def scene(home: House) -> None:
        for name in ("a", "b"):
            await home.session(name)
        running, queued = await home.send("a", "stall"), await home.send("a", "hello")
        ended = await home.send("b", "hello")
        await home.ended(ended)
        await home.until_phase(running, "waiting")
        listed = {item["id"]: item for item in (await home.get("/v1/runs"))["items"]}
        assert listed[running]["phase"] == "waiting"
        assert "first_output" in {clock["clock"] for clock in listed[running]["clocks"]}
        assert (listed[queued]["phase"], listed[queued]["position"]) == ("queued", 1)
        assert (listed[ended]["phase"], listed[ended]["clocks"]) == ("closed", [])

    play(scene)


def test_a_diagnosis_tells_what_a_run_does_and_what_comes_next() -> None:
    async def scene(home: House) -> None:
        await home.session("a")
        run = await home.send("a", "stall after 1")
        behind = await home.send("a", "hello")
        await home.until_phase(run, "working")
        known = await home.get(f"/v1/runs/{run}/diagnosis")
        assert (known["state"], known["phase"], known["last"]) == (
            "running", "working", "output.text",
        )  # fmt: skip
        assert known["stalling_in_s"] > 0
        first = known["clocks"][0]
        assert first["clock"] == "idle"
        assert "timed_out/idle" in first["then"]
        waits = await home.get(f"/v1/runs/{behind}/diagnosis")
        assert (waits["state"], waits["behind"]) == ("queued", run)
        told = await home.ask("GET", "/v1/runs/r_nope/diagnosis")
        assert (told.status, told.json["code"]) == (404, "TK-503")

    play(scene)
