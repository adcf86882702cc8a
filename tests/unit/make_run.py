"""Makes small synthetic run folders of format 1, written from docs/reference/record.md alone.

In: a plan, and what is to go wrong. Out: a `Made` run whose lines and files a test may edit before it is written,
linked and sealed. A toy server answers: its logprobs follow from the tokens so far, its slots keep their last tokens,
its counters count. It imports nothing of `audit/` and nothing of scripts/verify.py, so that none hides its own faults.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.toy_plan import JSON, Trial, canonical, sha, text_of, unfold

Step = list[Any]

VOCABULARY = 512
REQUEST = json.loads("""{"dry_allowed_length":2,"dry_base":1.75,"dry_multiplier":0.0,"dry_penalty_last_n":0,
"dynatemp_exponent":1.0,"dynatemp_range":0.0,"frequency_penalty":0.0,"ignore_eos":true,"logit_bias":[],"min_keep":0,
"mirostat":0,"mirostat_eta":0.1,"mirostat_tau":5.0,"n_keep":0,"post_sampling_probs":false,"presence_penalty":0.0,
"repeat_last_n":0,"repeat_penalty":1.0,"return_tokens":true,"samplers":["top_k","top_p","min_p","temperature"],"stop":[],
"timings_per_token":false,"top_n_sigma":-1.0,"typical_p":1.0,"xtc_probability":0.0,"xtc_threshold":0.1}""")


def f32(value: float) -> float:
    """Round to float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def one_ulp(value: float) -> float:
    """Move a negative float32 by one, away from zero."""
    return float(struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] + 1))[0])


class Toy:
    """A server that answers: logprobs follow from the tokens so far, slots keep their last tokens."""

    def __init__(self, slots: int) -> None:
        self.slots: list[list[int]] = [[] for _ in range(slots)]
        self.prompted = self.predicted = self.decodes = self.busy = 0
        self.reused = 0
        self.start = 100

    def metrics(self) -> dict[str, str | None]:
        """Return the counters as they are printed."""
        numbers = {"n_busy_slots_per_decode": self.busy / max(self.decodes, 1), "n_decode_total": self.decodes}
        numbers |= {"prompt_tokens_cached_total": self.reused, "prompt_tokens_total": self.prompted}
        numbers |= {"requests_deferred": 0, "requests_processing": 0, "tokens_predicted_total": self.predicted}
        return {name: f"{number:.6g}" for name, number in numbers.items()}

    def steps(self, body: dict[str, Any]) -> list[Step]:
        """Return what the toy model makes of a request."""
        forced = [int(word[2:-2]) for word in body["grammar"].split()[2:]]
        tokens, steps = list(body["prompt"]), []
        for at in range(body["n_predict"]):
            seed = hashlib.sha256(repr(tokens).encode()).digest()
            count = max(3, body["n_probs"])
            entries: list[list[Any]] = [
                [(seed[0] * 2 + 7 * k) % VOCABULARY, f32(-0.5 - k * 0.25 - seed[1] / 997)] for k in range(count)
            ]
            pick = 0
            if body["temperature"] > 0.0:
                pick = hashlib.sha256(f"{body['seed']} {body['temperature']} {at}".encode()).digest()[0] % 3
            token, own = (forced[at], dict(entries).get(forced[at])) if forced[at:] else entries[pick]
            tokens.append(token)
            steps.append([token, own, entries[: body["n_probs"]]] if body["n_probs"] else [token, None, []])
        return steps


def is_hole(step: Step, n_probs: int) -> bool:
    """Tell whether a step lacks something that was asked for."""
    _, own, entries = step
    ids = {token for token, _ in entries}
    return None in [own, *(value for _, value in entries)] or not len(ids) == len(entries) >= n_probs


class Made:
    """A run in memory: edit `lines` and `files`, then write it."""

    def __init__(
        self, plan: dict[str, Any], *, servers: tuple[str, ...] = ("toy",), registered: bool = True, **options: JSON
    ) -> None:
        """Make a run.

        Args:
            plan: a resolved plan.
            servers: their labels.
            registered: whether the run has a registration.
            options: `alter(trial, steps)` returns the steps that the server gives; `fail(trial)` a failure or None;
                `predictions` those of the registration; `slots`, `owned`, `metrics`, `show_slots` what a server has.
        """
        self.plan, self.labels, self.options = plan, servers, options
        self.lines: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {"plan.json": canonical(plan)}
        self.clock = 1_000_000
        self.alter: Callable[[Trial, list[Step]], list[Step]] = options.get("alter", lambda _, steps: steps)
        self.manifest: dict[str, Any] = {"format": 1, "kind": "audit", "plan": "sha256:" + sha(self.files["plan.json"])}
        self.registered = self.manifest["plan"]
        registration = self.registration(options.get("predictions", [])) if registered else None
        self.units = unfold(plan, self.registered)
        self.manifest.update(
            registered=self.registered, registration=registration, dependencies={"httpx": "1"}, python="CPython 3.11"
        )
        self.manifest["program"] = {"name": "determinism", "version": "0", "commit": None, "dirty": None}
        self.manifest["machine"] = {"cpu": None, "cpu_flags": None, "cores": 2, "kernel": None, "memory_bytes": None}
        self.prompts = {label: self.freeze() for label in servers}
        self.manifest["prompts"] = {
            label: {key: self.fact(fact) for key, fact in prompts.items()} for label, prompts in self.prompts.items()
        }
        self.toys = {label: Toy(options.get("slots", 8)) for label in servers}
        self.owned = options.get("owned", True)
        declaration = self.fact({"argv": []})
        self.manifest["servers"] = [
            {"label": label, "owned": self.owned, "attested": self.attested(label), "declaration": declaration}
            for label in servers
        ]
        self.streams: dict[tuple[str, str], list[Step]] = {}
        self.line("begin", process=0, wall_ns=1_700_000_000_000_000_000)
        for label in servers:
            self.serve(label)
        self.line("end", reason="finished")

    def registration(self, predictions: list[dict[str, Any]]) -> dict[str, Any]:
        """Store a registration; return what the manifest says of it."""
        texts = {"PREREG.md": b"# A toy\n", "plan.toml": b"name = 'toy'\n", "plan.json": self.files["plan.json"]}
        texts["predictions.json"] = json.dumps({"format": 1, "predictions": predictions}, indent=2).encode()
        self.registered = "sha256:" + sha("".join(f"{sha(data)}  {name}\n" for name, data in sorted(texts.items())))
        self.files |= {f"registration/{name}": data for name, data in texts.items()}
        blobs = {name: hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() for name, data in texts.items()}  # noqa: S324
        files = {name: {"sha256": "sha256:" + sha(data), "blob": blobs[name]} for name, data in texts.items()}
        return {"name": "toy", "digest": self.registered, "files": files, "commit": None, "status": "registered"}

    def freeze(self) -> dict[str, dict[str, Any]]:
        """Return the frozen prompts by key."""
        frozen = {}
        for trial in (trial for unit in self.units for trial in unit):
            prompt = self.plan["prompts"][trial["prompt"]]
            text = text_of(prompt).replace("{registered}", self.registered[7:23])
            text = text.replace("{block}", sha(self.registered + "block" + trial["block"])[:16])
            ids = prompt["ids"] or [2 + ord(letter) for letter in text]
            frozen[trial["key"]] = {"ids": ids[: prompt["tokens"]], "text": text}
        return frozen

    def fact(self, value: object) -> str:
        """Store a fact; return its digest."""
        return self.store("facts", canonical(value), ".json")

    def store(self, folder: str, data: bytes, suffix: str) -> str:
        """Store bytes under their digest; return it."""
        self.files[f"{folder}/{sha(data)}{suffix}"] = data
        return "sha256:" + sha(data)

    def stream(self, steps: list[Step], n_probs: int) -> dict[str, Any]:
        """Store a stream; return what a reply says of it."""
        head = {"dialect": "completion", "format": 1, "n_probs": n_probs}
        logprob = self.store("streams", b"".join(map(canonical, [head, *steps])), ".jsonl")
        token = "sha256:" + sha(canonical([step[0] for step in steps]))
        holes = sum(is_hole(step, n_probs) for step in steps) if n_probs else 0
        return {"logprob": logprob, "token": token, "steps": len(steps), "holes": holes}

    def line(self, kind: str, **more: JSON) -> dict[str, Any]:
        """Append a line of the history."""
        self.clock += 1_000
        self.lines.append({"line": kind, "at_ns": self.clock, **more})
        return self.lines[-1]

    def attested(self, label: str) -> dict[str, Any]:
        """Return what the server says of itself."""
        said = {"build_info": "b1-toy", "model": "toy.gguf", "models": self.fact({"data": label}), "n_ctx": 1024}
        said |= {"process": self.process(label), "props": self.fact({"total_slots": len(self.toys[label].slots)})}
        return said | {"slots": len(self.toys[label].slots), "vocabulary": VOCABULARY, "server_header": "llama.cpp"}

    def process(self, label: str) -> dict[str, Any]:
        """Return what names the server's process."""
        return {"start": str(self.toys[label].start), "media_marker": None}

    def serve(self, label: str) -> None:
        """Run the whole plan against one server."""
        declared = self.manifest["servers"][self.labels.index(label)]["declaration"]

        def server(phase: str) -> None:
            self.line("server", server=label, phase=phase, attested=self.attested(label), declaration=declared)

        server("start")
        self.snapshot(label, "start", None)
        for number, unit in enumerate(self.units):
            family, needed = unit[0]["family"], 1 + max(trial["slot"] for trial in unit)
            where = {"server": label, "unit": unit[0]["unit"]}
            if needed > len(self.toys[label].slots):
                self.line("skip", **where, reason="slots", needed=needed, available=len(self.toys[label].slots))
                continue
            if not self.owned and family in ("restart", "first_request"):
                self.line("skip", **where, reason="not owned", needed=None, available=None)
                continue
            if family == "restart" or (family == "first_request" and number > 0):
                self.toys[label].__init__(len(self.toys[label].slots))  # type: ignore[misc]
                self.toys[label].start = 101 + number
                server("restart")
            self.attempt(label, unit, 0)
        self.snapshot(label, "end", None)
        server("end")

    def snapshot(self, label: str, when: str, unit: str | None, attempt: int = 0) -> None:
        """Append a snapshot."""
        toy = self.toys[label]
        rows = [[index, False, len(held)] for index, held in enumerate(toy.slots)]
        slots = rows if self.options.get("show_slots", True) else None
        metrics = toy.metrics() if self.options.get("metrics", True) else None
        more = {"process": self.process(label), "props": self.attested(label)["props"], "health": None if unit else 200}
        self.line("snapshot", server=label, unit=unit, attempt=attempt, when=when, slots=slots, metrics=metrics, **more)

    def attempt(self, label: str, unit: list[Trial], number: int) -> None:
        """Try one unit once."""
        name = unit[0]["unit"]
        where = {"server": label, "unit": name, "attempt": number}
        self.snapshot(label, "before", name, number)
        if "wave" in unit[0]:
            late = [0] * len(unit)
            if unit[0]["family"] == "cross_batch_together":
                late[0] = 2_000_000
            if unit[0]["family"] == "cross_batch_staggered":
                late[1:] = [int(5e6 + 44e6 * member / len(unit)) for member in range(1, len(unit))]
            self.line("wave", **where, members=[trial["id"] for trial in unit], delays_ns=late)
            bodies = [self.invoke(label, trial, 0, where) for trial in unit]
            slots, start = len(self.toys[label].slots), self.clock + 100_000
            for index, (trial, body) in enumerate(zip(unit, bodies, strict=True)):
                begin = start + late[index] + (60_000_000 if index >= slots else 0)
                end = begin + (55_000_000 if trial.get("support") else 50_000_000)
                self.complete(label, trial, where, body, part=0, sent=begin, end=end, slot=index % slots)
        else:
            for part in range(unit[0].get("parts", 1)):
                body = self.invoke(label, unit[0], part, where)
                times = {"sent": self.clock + 10_000, "end": self.clock + 50_010_000}
                self.complete(label, unit[0], where, body, part=part, slot=unit[0]["slot"], **times)
        self.snapshot(label, "after", name, number)

    def invoke(self, label: str, trial: Trial, part: int, where: dict[str, Any]) -> dict[str, Any]:
        """Append an invoke; return the body."""
        family, ids = trial["family"], self.prompts[label][trial["key"]]["ids"]
        known = [step[0] for step in self.streams.get((label, trial["ref"] or ""), [])]
        greedy = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        sampled = dict(self.plan["sampling"]) if trial["sampled"] else greedy
        if family == "control_temperature":
            sampled["temperature"] = self.plan["control_temperature"]
        ids = ids[: len(ids) // 2] if trial.get("half") else ids + known[:part] if "parts" in trial else ids
        body = {**REQUEST, **sampled, "cache_prompt": bool(trial.get("cache")), "id_slot": trial["slot"]}
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in known) if trial.get("forced") else ""
        body |= {"grammar": grammar, "prompt": ids, "seed": trial["seed"]}
        body["n_probs"] = {"canary": VOCABULARY, "without_logprobs": 0}.get(family, self.plan["n_probs"])
        body |= {"n_predict": trial["steps"], "stream": family in ("canary", "stream_vs_whole")}
        self.line("invoke", **where, trial=trial["id"], part=part, request=self.fact(body), slot=trial["slot"])
        return body

    def complete(self, label: str, trial: Trial, where: dict[str, Any], body: dict[str, Any], **more: int) -> None:
        """Append a complete: the toy's reply, or the failure that was asked for."""
        toy, prompt = self.toys[label], body["prompt"]
        part, slot, sent, end = (more[name] for name in ("part", "slot", "sent", "end"))
        times = {"sent_ns": sent, "first_byte_ns": end - 1_000, "last_byte_ns": end}
        self.clock = max(self.clock, end)
        failure = self.options.get("fail", lambda _: None)(trial)
        said = {**where, "trial": trial["id"], "part": part, **times}
        if failure:
            self.line("complete", **said, status=500, failure=failure, reply=None)
            return
        steps = self.alter({**trial, "server": label}, toy.steps(body))
        held = toy.slots[slot] if body["cache_prompt"] else []
        shared = min(len(held), len(prompt))
        same = next((at for at in range(shared) if held[at] != prompt[at]), shared)
        cached = min(same, len(prompt) - 1)
        toy.slots[slot] = prompt + [step[0] for step in steps]
        toy.prompted += len(prompt) - cached
        toy.reused += cached
        toy.predicted += len(steps)
        toy.decodes += len(steps) if slot == 0 else 0
        toy.busy += len(steps)
        settings = {key: value for key, value in body.items() if key not in ("prompt", "id_slot", "cache_prompt")}
        settings |= {"max_tokens": body["n_predict"], "logit_bias": [1], "xtc_threshold": f32(0.1)}
        settings["speculative.types"] = "none"
        reply: dict[str, Any] = {"rows": None, "joined": None, "settings": self.fact(settings), "model": "toy.gguf"}
        reply["prompt_echo"] = "sha256:" + sha(self.prompts[label][trial["key"]]["text"].replace(" ", ""))
        reply |= {"id_slot": slot, "tokens_evaluated": len(prompt), "tokens_predicted": len(steps), "cache_n": cached}
        reply |= {"prompt_n": len(prompt) - cached, "prompt_ms": 5.0, "predicted_n": len(steps), "draft_n": None}
        reply["predicted_ms"] = (end - sent) / 1e6 - 6.0
        if trial["family"] == "cross_batch_staggered" and trial.get("support"):
            reply["predicted_ms"] = (end - sent) / 1e6 - 9.0
        reply |= {"truncated": False, "stop_type": "limit", "above_zero": 0, "saturated": 0}
        if trial["family"] == "canary":
            rows = [struct.pack(f"<{VOCABULARY}f", *(logprob for _, logprob in sorted(step[2]))) for step in steps]
            file = self.store("rows", b"".join(rows), ".f32")
            shape, digests = [len(rows), VOCABULARY], ["sha256:" + sha(row) for row in rows]
            reply |= {**self.stream(steps, VOCABULARY), "logprob": None}
            reply["rows"] = {"file": file, "shape": shape, "digests": digests}
            unnamed = {path for path, data in self.files.items() if path[:7] == "streams" and b'"n_probs":512' in data}
            self.files = {path: data for path, data in self.files.items() if path not in unnamed}
        else:
            reply |= self.stream(steps, body["n_probs"])
            known = self.streams.setdefault((label, trial["id"]), [])
            known += steps
            if "parts" in trial and part == trial["parts"] - 1:
                reply["joined"] = self.stream(known, body["n_probs"])
        self.line("complete", **said, status=200, failure=None, reply=reply)

    def of(self, kind: str, **wanted: JSON) -> list[dict[str, Any]]:
        """Return the lines of a kind with these values."""
        found = [line for line in self.lines if line["line"] == kind]
        return [line for line in found if all(line[key] == value for key, value in wanted.items())]

    def write(self, folder: Path, *, sealed: bool = True) -> Path:
        """Write, link and seal the run into a new folder; return it."""
        files = {**self.files, "manifest.json": canonical(self.manifest)}
        previous, history = "sha256:" + sha(files["manifest.json"]), []
        for number, line in enumerate(self.lines):
            history.append(canonical({**line, "n": number, "prev": previous}))
            previous = "sha256:" + sha(history[-1])
        files["history.jsonl"] = b"".join(history)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        if sealed:
            seal(folder, sorted(files))
        return folder


def seal(folder: Path, paths: list[str], name: str = "SHA256SUMS") -> None:
    """Write a list of sums."""
    (folder / name).write_text("".join(f"{sha((folder / path).read_bytes())}  {path}\n" for path in sorted(paths)))
