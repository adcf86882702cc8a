"""The tiny models: the same bytes from the same name, and a vocabulary that any ASCII text fits."""

import hashlib
import string
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from audit.errors import UsageError
from audit.tiny import (
    TINY_ARCHITECTURES,
    TINY_NAMES,
    TINY_QUANTIZATIONS,
    TINY_VOCABULARY,
    parse_tiny_name,
    tiny_vocabulary,
    write_tiny,
)
from scripts import tiny_models

# The bytes that gguf 0.19.0 writes; a changed line means that every record which names a tiny model speaks of another.
SHA256 = {
    "tiny-llama-f32": "206b7aa3dc2e3d99cd3866039c3f99c7e54dced37ac6b7d5dfdc03adb1057102",
    "tiny-llama-f16": "29f18433d94ea68de5dbe9e9b2299558f2be893964bd9dc305272a002f1c6ba8",
    "tiny-llama-q8_0": "7d224423f4ffc817bc21e674873166e305e9ccd22361c490b25fd8bda2320d82",
    "tiny-llama-q4_0": "e14691674df8f2c7f9125d03325b3925ed69015a7610ae5ddcff9b14bd8010de",
    "tiny-qwen2-f32": "d2ff4b62624c3fd1b45f49c9bde5fd6d34cf22d6d6269144c0f6214f3fbcffba",
    "tiny-qwen2-f16": "4ec2c3e5ec0498b68afecc028ee788d920b863260c91f042c3a400cbdeda2478",
    "tiny-qwen2-q8_0": "029013009e9d27abd804d21073053610df3164a51be3863b163e765f93d61f47",
    "tiny-qwen2-q4_0": "929183c36f23726afa789f63d8f660540672c2f6482bc3a497b02e01f5e1c750",
    "tiny-qwen3-f32": "b42fee792f502fd4c793ef87d5b82891632bcc003ac63369db61f9fe16bc3b1f",
    "tiny-qwen3-f16": "5a7a24ae695972a06f245c9059aacc736821e56bb65c331f4f686ac371ea79ce",
    "tiny-qwen3-q8_0": "d27f72fcbca6613fa02b1ce95cb7caf9bd69b7c0c66172d3fddbc81679465acf",
    "tiny-qwen3-q4_0": "f5a57407565c5938afa4dfe15dc4689ee3eb81367d8c2693c1e16ad2c1c8662b",
    "tiny-gemma3-f32": "6d008f16ab21bf2c714cefa58c431e69e5ee96f8d7aac38efe88e5047d889f66",
    "tiny-gemma3-f16": "7656966b317e511e9afa39b9d59b37c3bef24e39e5ac40148b69d07133fc6e64",
    "tiny-gemma3-q8_0": "a1a7c901afab41d9ca472e34a3022a0fab3d699ef19fa5d5a5fb8097ffb98730",
    "tiny-gemma3-q4_0": "5909edf6cab2c9a4a645c6597cbd77697a69ab53867f6ce31dc15e6dc70521c7",
    "tiny-gemma-f32": "400ce7b2652a8524e9fbff153a0ba98669abe59959a3bbe0b0cff021f9c89826",
    "tiny-gemma-f16": "4a899c0ff51aaf049f92c0c9eb7462ca8a0995506f89be0df4e927511235b2d8",
    "tiny-gemma-q8_0": "513bcacd5b6d3cb8f9f3abed7a2e02fc3591a6b029f5e5440052703860154f89",
    "tiny-gemma-q4_0": "2c3fbf3a1c5cacaf532b55cd5bd365ed415f6ac8839fed3cb68f044b21eba9fb",
    "tiny-gemma2-f32": "fe83c771495dc5e6fdd2cb7f6a26f6422227b225eb8c4020579d5312fd56edce",
    "tiny-gemma2-f16": "0f6106c6a1d50901f23cdb6df868610edd7388765d37e76b8cc2791087e548b8",
    "tiny-gemma2-q8_0": "1b66d50d97086f1bc4ebdb7614e6eaac5530eb4d9f3a722b98430171cfc209c4",
    "tiny-gemma2-q4_0": "4f6476d3eae8ce2d9a727942b0a9bd0a1ce4da87e50d1045d1bb32803977041f",
    "tiny-olmo2-f32": "65d89b1a4b2e835267bbdc606a33ac12e879ba9bbca03393eb905f5c13b02b05",
    "tiny-olmo2-f16": "7e38fbd790428ec665330a42d982e6496ed6d577c41e9985efbd9427e5a4d0cf",
    "tiny-olmo2-q8_0": "e9fb33b07daeed9134728eae9d377785ba3431582cb2b45832267c6be223d064",
    "tiny-olmo2-q4_0": "d5822e2513e2f63067c691cc5d937011e593d588c0172b4993fc1da42f191aee",
    "tiny-granite-f32": "e563f8e19abdb2f337552212d1edca26d0a2de497a2918d26c7f8dc7efd7e1b6",
    "tiny-granite-f16": "b5fdfb5cbe6c5980820ecc7f8d99b92ba9ef59ea149f6ca1a5946037b9e293a6",
    "tiny-granite-q8_0": "3bd35c4189e9d230dbc7443f8f2aa1556a0d1cd33c06b92ce52695b022063b43",
    "tiny-granite-q4_0": "d051cc51ea6fae26021ba1ac660035f3581ab5575e974c5e98be07640c3afb32",
    "tiny-smollm3-f32": "c4e96e861cd049520198446ed1c05fb6fe300e912b5ff4b42fa72ad94add7211",
    "tiny-smollm3-f16": "2c491e8eed7acf124cd6008f5d98fa6bf0bf781ec59baf429bb7285bf056f0c7",
    "tiny-smollm3-q8_0": "d9953f9cd3ad4d19e5611544c5056219d5a0fe80607eddb8989e8ac853bd972a",
    "tiny-smollm3-q4_0": "96ad57f23a8eef1dd6bfa1c24f1da37b731b146304ca925da93ebc76adfb535c",
    "tiny-starcoder2-f32": "fc46bef929f6a376f6297ba8cebd7a0e609ae6202c45f76a4519413c738eab39",
    "tiny-starcoder2-f16": "7107e0f8350693341e1ebe776e4ba43879af14031f37a26d234bac13e0e30378",
    "tiny-starcoder2-q8_0": "b5d940604bd924a83309e97815637b0bb7c2c7d719be623555aa9c56ff18c790",
    "tiny-starcoder2-q4_0": "ebde36ad414b8043c1461aa5287d4e634ba6de984defee1699e91410b214809e",
    "tiny-command-r-f32": "e94024006640fe1c942606a9ddaa0cd393a94746e81cc20d8935ec51149ff509",
    "tiny-command-r-f16": "04da684f0b7bdc1661c647ad36be173335a77fbab7b3aa858e17d128bf731591",
    "tiny-command-r-q8_0": "eb4fb210ce54cd07f4cfee4fb795189aa2b956be9cb4e6323e51b5b04b07c2d4",
    "tiny-command-r-q4_0": "197ad7e85a48e7d80065527d3d395ed9b64e35837f9a14ca3a23baecf692328a",
    "tiny-qwen3moe-f32": "435894a18680544a6bb8c1033cb7b8bb051ef1405a166f6aa475239c255180eb",
    "tiny-qwen3moe-f16": "b24067f6b9435daa88133c16ac37a0df842538151bdf26019ba98eed46f6148c",
    "tiny-qwen3moe-q8_0": "c46be659964b613e851aa4e16d6ee1c8be98b3f3a71ce3a6b92605a32ffdba87",
    "tiny-qwen3moe-q4_0": "16da77ae1ce0cb89253be8110ace3ca71abfa5f40eb2de95a5349060d365a0b3",
    "tiny-mamba-f32": "1a89ca3639121955c5fab2f286a99bdb4de38798262a17b047ec288f2edb9a07",
    "tiny-mamba-f16": "83f96d143e074b6fafd9556319a5b0777e6631096632de39df893469ae196e49",
    "tiny-mamba-q8_0": "d95ac6a0f96eb9396887ad8dc095697646b847a192ddc6362ee92d8956bd1f52",
    "tiny-mamba-q4_0": "fc69da55632e13e8210d08a0f5c30b442eb397444f1f9053cbeef18f1bdfcb08",
}


def test_every_architecture_comes_in_every_quantization() -> None:
    """The names are the product of the two lists, and the table of digests covers them all."""
    assert len(TINY_NAMES) == len(TINY_ARCHITECTURES) * len(TINY_QUANTIZATIONS) == len(SHA256)
    assert set(TINY_NAMES) == set(SHA256)


@pytest.mark.parametrize("name", TINY_NAMES)
def test_a_name_always_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Two writes agree with each other and with the digest from another machine."""
    first, second = tmp_path / "a" / "first.gguf", tmp_path / "second.gguf"
    assert write_tiny(name, first) == write_tiny(name, second) == SHA256[name]
    assert hashlib.sha256(first.read_bytes()).hexdigest() == SHA256[name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "second.gguf"]


def test_models_are_a_few_megabytes_and_differ() -> None:
    """No two of the models are the same file."""
    assert len(set(SHA256.values())) == len(SHA256)


def test_the_file_says_what_its_name_says(tmp_path: Path) -> None:
    """Architecture, vocabulary, context and the type of a matrix stand in the file as the name promises."""
    gguf = pytest.importorskip("gguf")
    write_tiny("tiny-gemma3-q4_0", tmp_path / "m.gguf")
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert reader.get_field("general.architecture").contents() == "gemma3"
    assert reader.get_field("gemma3.context_length").contents() == 4096
    assert len(reader.get_field("tokenizer.ggml.tokens").contents()) == TINY_VOCABULARY
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["blk.0.attn_q.weight"] == "Q4_0"
    assert kinds["output_norm.weight"] == "F32"


def test_quantizing_keeps_the_weights(tmp_path: Path) -> None:
    """The Q8_0 file holds the F32 file's weights, up to half a step of its blocks."""
    gguf = pytest.importorskip("gguf")
    exact: dict[str, npt.NDArray[np.float32]] = {}
    rounded: dict[str, npt.NDArray[np.float32]] = {}
    for quantization, tensors in (("f32", exact), ("q8_0", rounded)):
        path = tmp_path / f"{quantization}.gguf"
        write_tiny(f"tiny-llama-{quantization}", path)
        for tensor in gguf.GGUFReader(path).tensors:
            tensors[tensor.name] = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    error = np.abs(exact["output.weight"] - rounded["output.weight"]).max()
    assert 0 < error <= np.abs(exact["output.weight"]).max() / 127


def test_the_vocabulary_covers_ascii_text() -> None:
    """Each printable character, space, newline and tab is a piece, so no ASCII text loses a character."""
    pieces, merges = tiny_vocabulary()
    assert len(pieces) == len(set(pieces)) == TINY_VOCABULARY
    written = {" ": "\u0120", "\n": "\u010a", "\t": "\u0109"}
    text = string.ascii_letters + string.digits + string.punctuation + " \n\t"
    assert all(written.get(char, char) in pieces for char in text)
    assert all("".join(merge.split(" ")) in pieces for merge in merges)


def test_there_are_no_byte_tokens() -> None:
    """A piece such as <0x41> would let a reply end inside a character."""
    pieces, _ = tiny_vocabulary()
    assert not [piece for piece in pieces if piece.startswith("<0x")]


@pytest.mark.parametrize("name", ["llama-f32", "tiny-llama-q5_0", "tiny-gpt2-f32", "tiny-llama-F32", ""])
def test_an_unknown_name_is_refused(name: str) -> None:
    """The error names the name and the hint lists those that exist."""
    with pytest.raises(UsageError, match="no tiny model is called") as caught:
        parse_tiny_name(name)
    assert "tiny-llama-f32" in str(caught.value.hint)


def test_the_script_prints_lines_for_sha256sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is a digest, two spaces and the file's name, with or without `tiny-` in what was asked."""
    assert tiny_models.main(["--out", str(tmp_path), "llama-q4_0", "tiny-qwen3-q4_0"]) == 0
    expected = [f"{SHA256[name]}  {name}.gguf" for name in ("tiny-llama-q4_0", "tiny-qwen3-q4_0")]
    assert capsys.readouterr().out.splitlines() == expected
    assert len(list(tmp_path.iterdir())) == 2


def test_the_script_writes_nothing_when_a_name_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, the reason on stderr, and no file although the first name was right."""
    assert tiny_models.main(["--out", str(tmp_path), "llama-q4_0", "llama-q9"]) == 2
    assert "tiny-llama-q9" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
