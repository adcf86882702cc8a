"""Reply: the JSON that llama-server would send for what the engine has done.

In: events of the engine and the state of slots. Out: dictionaries whose keys stand in llama-server's order. Nothing
is encoded or sent here.
"""

from audit.fake.echo import slot_settings
from audit.fake.settings import FakeSettings
from audit.fake.slot import Finished, Generation, Slot, Step, Stepped
from audit.fake.vocabulary import Vocabulary

__all__ = ["event", "slot_state", "whole"]


def whole(finished: Finished, settings: FakeSettings, vocabulary: Vocabulary) -> dict[str, object]:
    """Return the body of a whole reply, or the last event of a stream: that one repeats no text and no entries."""
    generation = finished.generation
    request = generation.request
    listed = request.return_tokens and not request.stream
    body: dict[str, object] = {
        "index": request.index,
        "content": "" if request.stream else generation.text,
        "tokens": [step.token for step in finished.steps] if listed else [],
        "id_slot": finished.slot_id,
        "stop": True,
        "model": settings.model_name,
        "tokens_predicted": len(finished.steps),
        "tokens_evaluated": len(request.prompt),
        "generation_settings": request.settings,
        "prompt": vocabulary.detokenize(request.prompt),
        "has_new_line": "\n" in generation.text,
        "truncated": generation.truncated,
        "stop_type": generation.stop_type,
        "stopping_word": generation.stopping_word,
        "tokens_cached": finished.tokens_cached,
        "timings": _timings(generation, len(finished.steps)),
    }
    # A stop text takes as many entries away as it has tokens by itself.
    kept = len(finished.steps) - len(vocabulary.tokenize(generation.stopping_word))
    if request.n_probs > 0 and kept > 0 and not request.stream:
        body["completion_probabilities"] = [_entry(step, generation, vocabulary) for step in finished.steps[:kept]]
    return body


def event(stepped: Stepped, vocabulary: Vocabulary) -> dict[str, object]:
    """Return one event of a stream before the last."""
    generation, step = stepped.generation, stepped.step
    request = generation.request
    body: dict[str, object] = {
        "index": request.index,
        "content": step.text,
        "tokens": [step.token],
        "stop": False,
        "id_slot": -1,
        "tokens_predicted": stepped.count,
        "tokens_evaluated": len(request.prompt),
    }
    if request.timings_per_token or (generation.stop_type == "word" and stepped.count == len(generation.steps)):
        body["timings"] = _timings(generation, stepped.count)
    if request.n_probs > 0:
        body["completion_probabilities"] = [_entry(step, generation, vocabulary)]
    return body


def slot_state(slot: Slot, settings: FakeSettings) -> dict[str, object]:
    """Return one element of `/slots`; a slot that nobody has used yet has little to tell."""
    running = slot.running
    body: dict[str, object] = {
        "id": slot.index,
        "n_ctx": settings.ctx_per_slot,
        "speculative": False,
        "is_processing": running is not None,
    }
    shown = running or slot.last
    if shown is None:
        return body
    decoded = len(running.steps) if running else 0
    next_token = {
        "has_next_token": running is not None,
        "has_new_line": "\n" in shown.text,
        "n_remain": shown.step_count_max - decoded if running else -1,
        "n_decoded": decoded,
    }
    return body | {
        "id_task": shown.task.id,
        "n_prompt_tokens": slot.fill,
        "n_prompt_tokens_processed": running.prompt_n if running else 0,
        "n_prompt_tokens_cache": running.cache_n if running else 0,
        "params": slot_settings(shown.request.settings),
        "next_token": [next_token],
    }


def _timings(generation: Generation, predicted_n: int) -> dict[str, object]:
    prompt_n, prompt_ms = generation.prompt_n, generation.prompt_ms
    # The first token comes out of the prompt's last decode, so the rates count one less.
    decoded = max(0, predicted_n - 1)
    predicted_ms = generation.predicted_ms
    return {
        "cache_n": generation.cache_n,
        "prompt_n": prompt_n,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / prompt_n if prompt_n else 0.0,
        "prompt_per_second": prompt_n / prompt_ms * 1e3 if prompt_ms else 0.0,
        "predicted_n": predicted_n,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / decoded if decoded else 0.0,
        "predicted_per_second": decoded / predicted_ms * 1e3 if predicted_ms else 0.0,
    }


def _entry(step: Step, generation: Generation, vocabulary: Vocabulary) -> dict[str, object]:
    """Return the probabilities of one step: logprobs of the row, or probabilities after sampling."""
    count = generation.request.n_probs
    head: dict[str, object] = {"id": step.token, "token": step.text, "bytes": list(step.text.encode("ascii"))}
    if generation.request.post_sampling_probs:
        choice = step.choice
        at = choice.candidates.tolist().index(step.token)
        top = _top("prob", choice.candidates[:count].tolist(), choice.probabilities[:count].tolist(), vocabulary)
        return head | {"prob": float(choice.probabilities[at]), "top_probs": top}
    row = step.row
    best = row.order[:count]
    top = _top("logprob", best.tolist(), row.logprobs[best].tolist(), vocabulary)
    return head | {"logprob": float(row.logprobs[step.token]), "top_logprobs": top}


def _top(name: str, tokens: list[int], values: list[float], vocabulary: Vocabulary) -> list[dict[str, object]]:
    shown, shown_bytes = vocabulary.shown, vocabulary.shown_bytes
    return [
        {"id": token, "token": shown[token], "bytes": shown_bytes[token], name: value}
        for token, value in zip(tokens, values, strict=True)
    ]
