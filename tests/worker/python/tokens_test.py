#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir-tokens without packages; what needs one is skipped by name where it is missing. tests/worker/data/weir_tokens_test.cpp reads what it wrote."""
import contextlib
import gzip
import importlib.util
import io
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "worker/python"))
from weir_torch import tokens   # noqa: E402  pylint: disable=wrong-import-position


def has(package):
    return unittest.skipUnless(importlib.util.find_spec(package), f"the Python package {package} is not installed")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = str(self.folder / "corpus")

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def run_it(self, *words, tokenizer="bytes"):
        """Exit code, standard output, standard error."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = tokens.main([f"--tokenizer={tokenizer}", f"--out={self.out}", *words])
        return code, out.getvalue(), errors.getvalue()

    def read(self):
        """The documents of the pair of files, by a reader of its own."""
        index, data = pathlib.Path(self.out + ".idx").read_bytes(), pathlib.Path(self.out + ".bin").read_bytes()
        self.assertEqual(index[:9], b"MMIDIDX\0\0")
        version, code, sequences, documents = struct.unpack_from("<QBQQ", index, 9)
        self.assertEqual((version, documents), (1, sequences + 1))
        letter = {8: "H", 4: "i"}[code]
        lengths = struct.unpack_from(f"<{sequences}i", index, 34)
        places = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
        self.assertEqual(struct.unpack_from(f"<{documents}q", index, 34 + 12 * sequences), tuple(range(documents)))
        self.assertEqual(len(index), 34 + 12 * sequences + 8 * documents)
        self.assertEqual(len(data), sum(lengths) * struct.calcsize(letter))
        return [list(struct.unpack_from(f"<{length}{letter}", data, place)) for length, place in zip(lengths, places)]

    def refusal(self, *words, **more):
        code, _, errors = self.run_it(*words, **more)
        self.assertEqual(code, 2, errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertEqual(list(self.folder.glob("corpus*")), [])
        return errors.strip()


class WeirTokens(Case):
    def test_documents_of_all_kinds_end_with_the_end_token(self):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in ("one", "", "zwölf"))
        code, out, _ = self.run_it(self.file("a.jsonl", lines), self.file("b.jsonl.gz", gzip.compress(lines.encode())), self.file("c.txt", "x\ny"),
                                   self.file("d.txt.gz", gzip.compress(b"z")))
        self.assertEqual(code, 0)
        expected = [[*text.encode(), 256] for text in ("one", "zwölf", "one", "zwölf", "x\ny", "z")]
        self.assertEqual(self.read(), expected)
        self.assertIn(f"6 documents, {sum(map(len, expected))} tokens of u16, end token 256", out)
        self.assertIn(f"weir-worker --data={self.out} --vocab=257", out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.jsonl", "b.jsonl.gz", "c.txt", "corpus.bin", "corpus.idx", "d.txt.gz"])

    def test_half_a_character_is_replaced(self):
        self.assertEqual(self.run_it(self.file("a.jsonl", '{"text": "a\\ud83d"}\n{"text": "\\ud83d\\ude00"}\n'))[0], 0)
        self.assertEqual(self.read(), [[*"a\ufffd".encode(), 256], [*"\U0001f600".encode(), 256]])

    def test_many_documents_are_written_in_pieces(self):
        texts = [str(number) for number in range(70_000)]
        path = self.file("a.jsonl", "".join(json.dumps({"body": text}) + "\n" for text in texts))
        self.assertEqual(self.run_it("--field=body", path)[0], 0)
        self.assertEqual(self.read(), [[*text.encode(), 256] for text in texts])

    def test_what_is_wrong_is_one_line_that_names_it_and_leaves_no_file(self):
        good = self.file("good.jsonl", '{"text": "a"}\n')
        self.assertIn("bad.jsonl: line 2 is not JSON", self.refusal(good, self.file("bad.jsonl", '{"text": "a"}\n{"te')))
        self.assertIn("none.jsonl: line 1 has no text in its field 'text' (--field)", self.refusal(self.file("none.jsonl", '{"content": "a"}\n')))
        self.assertIn("no text in its field", self.refusal(self.file("list.jsonl", "[1]\n")))
        self.assertIn("latin.txt: is not UTF-8 at byte 1", self.refusal(self.file("latin.txt", b"f\xfcr")))
        self.assertIn("absent.txt: no such file", self.refusal(str(self.folder / "absent.txt")))
        self.assertIn("a.pdf: is none of .txt", self.refusal(self.file("a.pdf", "x")))
        self.assertIn("no document that is not empty", self.refusal(self.file("empty.txt", "")))
        self.assertIn("cut.txt.gz: is cut off or damaged", self.refusal(self.file("cut.txt.gz", gzip.compress(bytes(range(100)))[:-12])))
        self.assertIn("no.jsonl.gz: is cut off or damaged", self.refusal(self.file("no.jsonl.gz", "no gzip")))
        self.assertIn("tokenizer.json: no such file", self.refusal(good, tokenizer=str(self.folder)))
        self.assertIn("no effect with --tokenizer=bytes", self.refusal("--end-token=x", good))

    def test_files_that_exist_are_replaced_by_consent_only(self):
        path = self.file("a.txt", "first")
        self.assertEqual(self.run_it(path)[0], 0)
        before = self.read()
        code, _, errors = self.run_it(self.file("b.txt", "second"))
        self.assertEqual(code, 2)
        self.assertIn("corpus.bin: exists (--overwrite replaces it)", errors)
        self.assertEqual(self.read(), before)
        self.assertEqual(self.run_it("--overwrite", str(self.folder / "b.txt"))[0], 0)
        self.assertEqual(self.read(), [[*b"second", 256]])

    def test_a_folder_that_cannot_be_written_is_named(self):
        self.out = str(self.folder / "absent" / "corpus")
        code, _, errors = self.run_it(self.file("a.txt", "x"))
        self.assertEqual(code, 1)
        self.assertIn("absent/corpus.bin.tmp", errors)

    def test_long_work_shows_its_progress(self):
        path, now, lines = self.file("a.txt", "x" * 3_000_000), [0.0], []
        other = self.file("b.txt", "x" * 1_000_000)
        progress = tokens.Progress([path, other], clock=lambda: now[0], write=lines.append)
        progress.at(path, 2_000_000)
        progress.show(10, 500)
        self.assertEqual(lines, [])
        now[0] = 6.0
        progress.at(path, 3_000_000)
        progress.show(20, 6_000_000)
        progress.show(21, 6_000_000)
        self.assertEqual(lines, ["3 of 4 MB, 20 documents, 6,000,000 tokens, 1.00 million a second, 2 s left"])
        now[0] = 12.0
        progress.at(other, 500_000)
        progress.show(30, 9_000_000)
        self.assertTrue(lines[1].startswith("4 of 4 MB, 30 documents"), lines)   # 3.5 is rounded

    def test_a_large_vocabulary_takes_32_bits(self):
        with tokens.Pair(self.out, tokens.I32) as pair:
            pair.add([1, 128_000], 128_001)
            pair.finish()
        self.assertEqual(self.read(), [[1, 128_000, 128_001]])

    def test_the_end_token_is_that_of_the_configuration_beside_the_tokenizer(self):
        self.assertEqual(tokens.named_end(self.file("a.json", '{"eos_token": "</s>"}')), ["</s>"])
        self.assertEqual(tokens.named_end(self.file("b.json", '{"eos_token": {"content": "<e>"}}')), ["<e>"])
        for text in ("{}", "[]", "{", '{"eos_token": null}'):
            self.assertEqual(tokens.named_end(self.file("c.json", text)), [])
        self.assertEqual(tokens.named_end(str(self.folder / "absent")), [])

    @unittest.skipIf(importlib.util.find_spec("tokenizers"), "the Python package tokenizers is installed")
    def test_a_package_that_is_missing_is_named(self):
        good = self.file("good.txt", "x")
        self.assertIn("needs the Python package tokenizers (pip install tokenizers)", self.refusal(good, tokenizer=self.file("tokenizer.json", "{}")))


class WithTokenizers(Case):
    def tokenizer(self, *special):
        import tokenizers as package   # pylint: disable=import-outside-toplevel
        made = package.Tokenizer(package.models.BPE())
        made.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = package.decoders.ByteLevel()
        trainer = package.trainers.BpeTrainer(vocab_size=300, special_tokens=list(special), show_progress=False,
                                              initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet())
        made.train_from_iterator(["the cat sat on the mat"] * 9, trainer)
        made.enable_truncation(2)   # of a model's own use; documents are not cut
        made.save(str(self.folder / "tokenizer.json"))
        return made

    @has("tokenizers")
    def test_the_tokens_are_those_of_the_tokenizer(self):
        made = self.tokenizer("<|endoftext|>")
        made.no_truncation()
        texts = ["the cat sat", "on the mat, zwölf"]
        path = self.file("a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
        code, out, errors = self.run_it(path, tokenizer=str(self.folder))
        self.assertEqual(code, 0, errors)
        end = made.token_to_id("<|endoftext|>")
        self.assertEqual(self.read(), [[*made.encode(text).ids, end] for text in texts])
        self.assertEqual([made.decode(ids[:-1]) for ids in self.read()], texts)
        self.assertIn(f"--vocab={made.get_vocab_size()}", out)

    @has("tokenizers")
    def test_an_end_token_that_is_not_known_is_asked_for(self):
        self.tokenizer("[END]")
        path, where = self.file("a.txt", "the cat"), str(self.folder / "tokenizer.json")
        self.assertIn("--end-token names it", self.refusal(path, tokenizer=where))
        self.assertIn("has no token '[STOP]' (--end-token)", self.refusal(path, "--end-token=[STOP]", tokenizer=where))
        self.assertEqual(self.run_it(path, "--end-token=[END]", tokenizer=where)[0], 0)

    @has("tokenizers")
    def test_a_file_that_is_no_tokenizer_is_named(self):
        self.assertIn("tokenizer.json: ", self.refusal(self.file("a.txt", "x"), tokenizer=self.file("tokenizer.json", "{}")))


class WithPyarrow(Case):
    @has("pyarrow")
    def test_a_row_of_parquet_is_a_document(self):
        import pyarrow   # pylint: disable=import-outside-toplevel
        import pyarrow.parquet   # pylint: disable=import-outside-toplevel
        texts = [f"row {number}" for number in range(2500)]
        path = str(self.folder / "a.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"id": list(range(2500)), "text": texts}), path)
        self.assertEqual(self.run_it(path)[0], 0)
        self.assertEqual(self.read(), [[*text.encode(), 256] for text in texts])

    @has("pyarrow")
    def test_parquet_that_does_not_fit_is_named(self):
        import pyarrow   # pylint: disable=import-outside-toplevel
        import pyarrow.parquet   # pylint: disable=import-outside-toplevel
        path = str(self.folder / "a.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"body": ["x", None]}), path)
        self.assertIn("a.parquet: has no column 'text', but body (--field)", self.refusal(path))
        self.assertIn("row 2 has no text in its column 'body'", self.refusal(path, "--field=body"))
        self.assertIn("b.parquet: ", self.refusal(self.file("b.parquet", "no parquet")))


if __name__ == "__main__":
    unittest.main()
