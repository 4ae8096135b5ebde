"""The shots of a library in PostgreSQL: vector search and filters in one statement.

Up to `EXACT_UP_TO` shots, every vector is compared, as in a library of files. Larger libraries are searched
by their HNSW index. An HNSW scan filters what it has found, so that a rare word could leave too little: the
scan goes on until there is enough (pgvector 0.8), and where it still ends early, every vector that passes the
filter is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.search import ann_index
from ctsan.search.candidates import least_level, to_confidence
from ctsan.search.postgres_schema import Connection
from ctsan.search.store import EVERYTHING, ConceptFilter, Shots

_EF_SEARCH = 200  # entries that an HNSW scan keeps in view
_MAX_EF_SEARCH = 1000


class PostgresShots(Shots):
    """See `Shots`. Queries run in the open snapshot.

    Args:
        count: number of all shots.
    """

    def __init__(self, connection: Connection, words: Sequence[str], *, revision: int, count: int) -> None:
        self.revision, self._count = revision, count
        self._connection = connection
        self._ids = {word: word_id for word_id, word in enumerate(words)}
        self._sampled: dict[int, NDArray[np.int64]] = {}  # by size; every query asks for the same
        self._sampled_vectors: dict[bytes, NDArray[np.float16]] = {}  # by rows

    def __len__(self) -> int:
        return self._count

    def count(self, where: ConceptFilter = EVERYTHING) -> int:
        if not where:
            return self._count
        condition, values = self._condition(where)
        [(count,)] = self._connection.query(f"select count(*) from shots where {condition}", values)
        return int(count)

    def sample(self, size: int, where: ConceptFilter = EVERYTHING) -> NDArray[np.int64]:
        if where:
            return self._sample(size, where)
        if size not in self._sampled:
            self._sampled = {size: self._sample(size, where)}
        return self._sampled[size]

    def _sample(self, size: int, where: ConceptFilter) -> NDArray[np.int64]:
        condition, values = self._condition(where)
        step = max(1, self.count(where) // max(size, 1))
        if step > 1 and not where:  # without reading all: ids are almost without gaps
            [(first, last)] = self._connection.query("select min(id), max(id) from shots")
            ids = np.unique(np.linspace(first, last, size).astype(np.int64))
            return self._rows("select id from shots where id = any(%s) order by id", [ids.tolist()])
        return self._rows(
            "select id from (select id, row_number() over (order by id) - 1 as place from shots "
            f"where {condition}) as allowed where place %% %s = 0 order by id",
            [*values, step],
        )

    def nearest(
        self, vector: NDArray[np.float32], k: int, where: ConceptFilter = EVERYTHING
    ) -> NDArray[np.int64]:
        from pgvector import HalfVector

        condition, values = self._condition(where)
        query = HalfVector(vector)
        if self._count > ann_index.EXACT_UP_TO:
            self._set("enable_indexscan", "on")
            self._set("hnsw.ef_search", str(min(max(k, _EF_SEARCH), _MAX_EF_SEARCH)))
            if self._connection.has_iterative_scan:
                self._set("hnsw.iterative_scan", "strict_order")
            rows = self._rows(
                f"select id from shots where {condition} order by vector <#> %s limit %s",
                [*values, query, k],
            )
            if len(rows) == min(k, self._count):
                return rows
        self._set("enable_indexscan", "off")
        rows = self._rows(
            f"select id from shots where {condition} order by vector <#> %s, id limit %s", [*values, query, k]
        )
        self._set("enable_indexscan", "on")
        return rows

    def known(self, rows: Sequence[int]) -> NDArray[np.int64]:
        return np.array(list(rows), np.int64)

    def last(self, count: int) -> NDArray[np.int64]:
        return self._rows("select id from shots order by id desc limit %s", [count])

    def confidences(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        records = self._connection.query(
            "select id, (select -levels[place] from unnest(candidates) with ordinality as stored (word, "
            "place) where word = any(%s::integer[]) order by place limit 1) from shots where id = any(%s)",
            (self._word_ids(words), rows.tolist()),
        )
        levels = {row: level or 0 for row, level in records}
        return to_confidence(np.array([levels.get(row, 0) for row in rows.tolist()], np.uint8))

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        key = rows.tobytes()
        if key in self._sampled_vectors:
            return self._sampled_vectors[key]
        vectors = self._read_vectors(rows)
        if any(np.array_equal(rows, sampled) for sampled in self._sampled.values()):
            self._sampled_vectors = {key: vectors}
        return vectors

    def _read_vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        records = self._connection.query("select id, vector from shots where id = any(%s)", (rows.tolist(),))
        if len(rows) == 0:
            return np.zeros((0, 0), np.float16)
        vectors = {row: vector.to_numpy() for row, vector in records}
        return np.stack([vectors[row] for row in rows.tolist()]).astype(np.float16)

    def concepts(self, rows: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
        records = self._connection.query(
            "select id, concepts, confidences from shots where id = any(%s)", (list(map(int, rows)),)
        )
        return {row: list(zip(words, confidences, strict=True)) for row, words, confidences in records}

    def _condition(self, where: ConceptFilter) -> tuple[str, list[object]]:
        """SQL of a filter, and its values: candidates with such a level are the first ones of a shot."""
        conditions, values = ["true"], list[object]()
        for words, negation in ((where.showing, ""), (where.hiding, "not ")):
            for shown in words:
                conditions.append(
                    f"{negation}(candidates[1:width_bucket(%s::smallint, levels)] && %s::integer[])"
                )
                values += [-least_level(shown.min_confidence), self._word_ids(shown.words)]
        return " and ".join(conditions), values

    def _word_ids(self, words: Sequence[str]) -> list[int]:
        return [self._ids[word] for word in words if word in self._ids]

    def _rows(self, sql: str, values: Sequence[object]) -> NDArray[np.int64]:
        return np.array(self._connection.query(sql, values), np.int64).reshape(-1)

    def _set(self, name: str, value: str) -> None:
        self._connection.query(f"set local {name} = {value}")
