#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir-tokens: documents to a file of tokens that weir-worker trains on.

It writes BASE.bin and BASE.idx in the format of Megatron's IndexedDatasetBuilder: each document is a sequence, with the tokenizer's end token behind
it. The files have other names until they are complete. Packages are imported where an input needs them: tokenizers for a tokenizer.json, pyarrow for
parquet.
"""
import argparse
import array
import contextlib
import gzip
import json
import os
import struct
import sys
import time
import zlib

MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
U16, I32 = (8, "H", "u16"), (4, "i", "i32")   # Megatron's code, the code of array, the name in Weir
MOST_LENGTH = 2**31 - 1    # the index has lengths of 32 bits
BATCH_DOCUMENTS, BATCH_CHARACTERS = 1000, 4_000_000
PROGRESS_SECONDS = 5.0
ENDS = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "<|im_end|>"]   # tried in this order
TEXTS, LINES = (".txt", ".md"), (".jsonl", ".ndjson")


class Wrong(Exception):
    """What the user can repair, in one line."""


def needs(package, what):
    try:
        return __import__(package)
    except ImportError as error:
        raise Wrong(f"{what} needs the Python package {package} (pip install {package}): {error}") from None


# --- tokenizers

class Bytes:
    """The bytes of UTF-8 as tokens 0 to 255, and an end token 256; needs no package."""
    vocabulary, end = 257, 256

    def encode(self, texts):
        return [list(text.encode()) for text in texts]


class Trained:
    """A tokenizer.json of Hugging Face."""

    def __init__(self, path, end):
        file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        if not os.path.isfile(file):
            raise Wrong(f"{file}: no such file; --tokenizer is a tokenizer.json, the folder of one, or the word bytes")
        package = needs("tokenizers", file)
        try:
            self.tokenizer = package.Tokenizer.from_file(file)
        except Exception as error:   # the package raises Exception itself
            raise Wrong(f"{file}: {one_line(error)}") from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocabulary = max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.end = self.end_token(file, end)

    def end_token(self, file, end):
        if end is not None:
            number = self.tokenizer.token_to_id(end)
            if number is None:
                raise Wrong(f"{file}: has no token {end!r} (--end-token)")
            return number
        for text in [*named_end(os.path.join(os.path.dirname(file), "tokenizer_config.json")), *ENDS]:
            number = self.tokenizer.token_to_id(text)
            if number is not None:
                return number
        raise Wrong(f"{file}: it is not known which token ends a document; --end-token names it")

    def encode(self, texts):
        return [encoded.ids for encoded in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


def named_end(path):
    """The end token that a tokenizer_config.json names, as a list of one or none."""
    try:
        with open(path, encoding="utf-8") as file:
            end = json.load(file).get("eos_token")
    except (OSError, ValueError, AttributeError):
        return []
    if isinstance(end, dict):
        end = end.get("content")
    return [end] if isinstance(end, str) else []


# --- inputs

def kind_of(path):
    name = path[:-3] if path.endswith(".gz") else path
    if name.endswith(TEXTS):
        return text_documents
    if name.endswith(LINES):
        return line_documents
    if path.endswith(".parquet"):
        return parquet_documents
    raise Wrong(f"{path}: is none of .txt, .md, .jsonl, .ndjson (each also with .gz) and .parquet")


@contextlib.contextmanager
def opened(path):
    """The bytes of a file, unpacked, and the file itself, whose position shows the progress."""
    with open(path, "rb") as raw:
        if not path.endswith(".gz"):
            yield raw, raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield unpacked, raw


# Each of these yields (document, bytes of the file behind it so far).
def text_documents(path, field):
    with opened(path) as (file, _):
        data = file.read()
    try:
        yield data.decode("utf-8"), os.path.getsize(path)
    except UnicodeDecodeError as error:
        raise Wrong(f"{path}: is not UTF-8 at byte {error.start}") from None


def line_documents(path, field):
    with opened(path) as (file, raw):
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise Wrong(f"{path}: line {number} is not JSON: {one_line(error)}") from None
            text = value.get(field) if isinstance(value, dict) else None
            if not isinstance(text, str):
                raise Wrong(f"{path}: line {number} has no text in its field {field!r} (--field)")
            yield whole(text) if b"\\u" in line else text, raw.tell()


def whole(text):
    """Half a pair of surrogates, which JSON can hold, is no character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parquet_documents(path, field):
    needs("pyarrow", path)
    import pyarrow.parquet   # pylint: disable=import-outside-toplevel
    size = os.path.getsize(path)
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise Wrong(f"{path}: {one_line(error)}") from None
    with file:
        if field not in file.schema_arrow.names:
            raise Wrong(f"{path}: has no column {field!r}, but {', '.join(file.schema_arrow.names)} (--field)")
        row, rows = 0, max(1, file.metadata.num_rows)
        for batch in file.iter_batches(batch_size=BATCH_DOCUMENTS, columns=[field]):
            for text in batch.column(0).to_pylist():
                row += 1
                if not isinstance(text, str):
                    raise Wrong(f"{path}: row {row} has no text in its column {field!r} (--field)")
                yield text, size * row // rows


def undamaged(path, documents):
    try:
        yield from documents
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Wrong(f"{path}: is cut off or damaged: {one_line(error)}") from None


def batches(paths, field, progress):
    """Lists of documents, none of which is empty."""
    texts, characters = [], 0
    for path in paths:
        for text, at in undamaged(path, kind_of(path)(path, field)):
            progress.at(path, at)
            if not text:
                continue
            texts.append(text)
            characters += len(text)
            if len(texts) >= BATCH_DOCUMENTS or characters >= BATCH_CHARACTERS:
                yield texts
                texts, characters = [], 0
    if texts:
        yield texts


# --- output

class Pair:
    """BASE.bin and BASE.idx. They get their names in finish(); without it nothing remains of them."""

    def __init__(self, base, kind):
        self.names = [base + ".bin", base + ".idx"]
        self.unfinished = [f"{name}.tmp-{os.getpid()}" for name in self.names]
        self.code, self.letter, _ = kind
        self.lengths = array.array("i")
        self.tokens = 0
        self.bin = open(self.unfinished[0], "wb")   # pylint: disable=consider-using-with

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.bin.close()
        for name in self.unfinished:
            with contextlib.suppress(FileNotFoundError):
                os.remove(name)

    def add(self, ids, end):
        numbers = array.array(self.letter, ids)
        numbers.append(end)
        if len(numbers) > MOST_LENGTH:
            raise Wrong(f"a document has {len(numbers)} tokens, more than {MOST_LENGTH}; split it")
        if sys.byteorder == "big":
            numbers.byteswap()
        self.bin.write(numbers.tobytes())
        self.lengths.append(len(numbers))
        self.tokens += len(numbers)

    def finish(self):
        close(self.bin)
        with open(self.unfinished[1], "wb") as index:
            self.write_index(index)
            close(index)
        for unfinished, name in zip(self.unfinished, self.names):
            os.replace(unfinished, name)

    def write_index(self, index):
        count, width = len(self.lengths), array.array(self.letter).itemsize
        index.write(MAGIC + struct.pack("<QBQQ", VERSION, self.code, count, count + 1))
        step, place = 65536, 0
        for first in range(0, count, step):
            part = self.lengths[first:first + step]
            index.write(struct.pack(f"<{len(part)}i", *part))
        for first in range(0, count, step):
            places = []
            for length in self.lengths[first:first + step]:
                places.append(place)
                place += length * width
            index.write(struct.pack(f"<{len(places)}q", *places))
        for first in range(0, count + 1, step):
            part = range(first, min(first + step, count + 1))
            index.write(struct.pack(f"<{len(part)}q", *part))


def close(file):
    file.flush()
    os.fsync(file.fileno())
    file.close()


class Progress:
    """A line on stderr every few seconds."""

    def __init__(self, paths, clock=time.monotonic, write=lambda line: print(line, file=sys.stderr, flush=True)):
        self.sizes = {path: os.path.getsize(path) for path in paths}
        self.all, self.before, self.path, self.here = sum(os.path.getsize(path) for path in paths), 0, None, 0
        self.clock, self.write = clock, write
        self.start = self.shown = clock()

    def at(self, path, here):
        if path != self.path:
            self.before += self.sizes.get(self.path, 0)
            self.path = path
        self.here = here

    def show(self, documents, tokens):
        now = self.clock()
        if now - self.shown < PROGRESS_SECONDS:
            return
        self.shown = now
        done, seconds = self.before + self.here, now - self.start
        left = seconds * (self.all - done) / max(1, done)
        self.write(f"{done / 1e6:,.0f} of {self.all / 1e6:,.0f} MB, {documents:,} documents, {tokens:,} tokens, {tokens / seconds / 1e6:.2f} million "
                   f"a second, {left:.0f} s left")


def one_line(error):
    return " ".join(str(error).split())


def convert(arguments, progress_of=Progress):
    """Writes the pair of files; returns it with the tokenizer."""
    for path in arguments.inputs:
        kind_of(path)
        if not os.path.isfile(path):
            raise Wrong(f"{path}: no such file")
    for name in (arguments.out + ".bin", arguments.out + ".idx"):
        if os.path.exists(name) and not arguments.overwrite:
            raise Wrong(f"{name}: exists (--overwrite replaces it)")
    if arguments.tokenizer == "bytes":
        if arguments.end_token is not None:
            raise Wrong("--end-token: has no effect with --tokenizer=bytes, whose end token is 256")
        tokenizer = Bytes()
    else:
        tokenizer = Trained(arguments.tokenizer, arguments.end_token)
    kind = U16 if tokenizer.vocabulary <= 2**16 else I32
    progress = progress_of(arguments.inputs)
    with Pair(arguments.out, kind) as pair:
        for texts in batches(arguments.inputs, arguments.field, progress):
            for ids in tokenizer.encode(texts):
                pair.add(ids, tokenizer.end)
            progress.show(len(pair.lengths), pair.tokens)
        if not pair.lengths:
            raise Wrong("the inputs have no document that is not empty")
        pair.finish()
    return pair, tokenizer, kind


def parser():
    result = argparse.ArgumentParser(
        prog="weir-tokens", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Writes the tokens of documents to BASE.bin and BASE.idx, which weir-worker --data=BASE reads (Megatron's format).",
        epilog="A text (.txt, .md) is one document; .jsonl and .ndjson have one a line, .parquet one a row; all but the last also with .gz.\n\n"
               "  weir-tokens --tokenizer=/models/X/tokenizer.json --out=/data/corpus a.jsonl.gz b.parquet c.txt\n"
               "  weir-worker --data=/data/corpus --vocab=50304 ...")
    result.add_argument("--tokenizer", required=True, metavar="FILE", help="a tokenizer.json, its folder, or the word bytes: bytes of UTF-8, end token 256")
    result.add_argument("--out", required=True, metavar="BASE", help="path of the files without .bin and .idx")
    result.add_argument("--field", default="text", help="field of a line, or column, with the text (default: text)")
    result.add_argument("--end-token", metavar="TEXT", help="token behind each document; default: that of tokenizer_config.json beside the tokenizer, else "
                        + ", ".join(ENDS))
    result.add_argument("--overwrite", action="store_true", help="replaces files that exist")
    result.add_argument("inputs", nargs="+", metavar="INPUT", help="files with documents")
    return result


def main(words=None):
    arguments = parser().parse_args(words)
    try:
        pair, tokenizer, kind = convert(arguments)
    except Wrong as error:
        print(f"weir-tokens: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"weir-tokens: {error.filename or arguments.out}: {error.strerror or one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("weir-tokens: interrupted, nothing was written", file=sys.stderr)
        return 130
    print(f"{pair.names[0]}: {len(pair.lengths):,} documents, {pair.tokens:,} tokens of {kind[2]}, end token {tokenizer.end}")
    print(f"weir-worker --data={arguments.out} --vocab={tokenizer.vocabulary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
