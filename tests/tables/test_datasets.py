"""Data sets: published shapes, offline look-up, downloads that leave nothing half done, and the synthetic table."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import struct
import tarfile
import urllib.error
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from dpdescent.datasets import list_datasets, load_dataset, store
from dpdescent.datasets.benchmark_tables import BANK_BOUNDS, COVERTYPE_BOUNDS, IJCNN1_ORIGIN, KDD_COLUMNS, code_bank
from dpdescent.datasets.census import ADULT_SCHEMA
from dpdescent.datasets.dataset import read_libsvm, rows_digest
from dpdescent.datasets.store import Remote, fetch, find_local
from dpdescent.datasets.synthetic_tables import synthetic_table
from dpdescent.errors import (
    ChecksumMismatch,
    ColumnTypeError,
    DatasetFormatError,
    DatasetNotAvailable,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnknownDataset,
    UnknownLevel,
)
from dpdescent.tables import CategoricalColumn, IgnoredColumn, Label, NumericColumn, Schema

DATA = os.environ.get("DPDESCENT_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="DPDESCENT_DATA is not set: no offline copies of real data sets")

# name: rows, columns, share of class 1 (None for ten classes), training rows (None without parts), seconds allowed
PUBLISHED = {
    "adult": (48_842, 123, 11_687 / 48_842, 32_561),
    "adult-raw": (48_842, 107, 11_687 / 48_842, 32_561),
    "bank": (45_211, 32, 5_289 / 45_211, None),
    "ipums-br": (38_000, 52, 19_240 / 38_000, None),
    "acs-income": (73_116, 118, 39_317 / 73_116, None),
    "covertype": (495_141, 54, 283_301 / 495_141, None),
    "ijcnn1": (141_691, 22, None, 49_990),
    "kddcup99": (494_021, 122, 1 - 97_278 / 494_021, None),
    "kddcup99-dos": (494_021, 122, 391_458 / 494_021, None),
    "mnist": (70_000, 784, None, 60_000),
    "fashion-mnist": (70_000, 784, None, 60_000),
}


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without copies and with an empty cache."""
    monkeypatch.delenv("DPDESCENT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dpdescent"


class Answer(io.BytesIO):
    """Stands in for an HTTP response."""

    def __init__(self, content, url, length=None):
        super().__init__(content)
        self.url = url
        self.headers = {"Content-Length": str(len(content) if length is None else length)}

    def geturl(self):
        return self.url


class Web:
    """Stands in for the network: a mapping from address to bytes, or to an exception."""

    def __init__(self, pages):
        self.pages = pages
        self.asked = []

    def __call__(self, url, timeout):
        assert timeout > 0
        self.asked.append(url)
        page = self.pages.get(url, urllib.error.URLError("no route to host"))
        if isinstance(page, Exception):
            raise page
        return page if isinstance(page, Answer) else Answer(page, url)


def offline_folder(tmp_path, monkeypatch, name, files):
    folder = tmp_path / "copies"
    (folder / name).mkdir(parents=True)
    for filename, content in files.items():
        (folder / name / filename).write_bytes(content)
    monkeypatch.setenv("DPDESCENT_DATA", str(folder))


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


# ---------------------------------------------------------------- real data


@needs_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_real_data_set_has_its_published_shape_and_base_rate(name):
    rows, columns, share, train_rows = PUBLISHED[name]
    data = load_dataset(name, download=False)
    assert data.X.shape == (rows, columns) == (rows, len(data.feature_names))
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert data.bounds[0] <= data.X.min()
    assert data.X.max() <= data.bounds[1]
    assert set(np.unique(data.y)) == set(data.classes)
    assert data.source.endswith(".")
    if data.binary_features is not None:
        assert data.binary_features.shape == (columns,)
        flags = data.X[:, data.binary_features]
        assert flags.shape[1] > 0
        assert ((flags == 0) | (flags == 1)).all()
    else:
        assert name == "ijcnn1" or len(data.classes) == 10
    if share is not None:
        assert data.y.mean() == pytest.approx(share, abs=1e-12)
    if train_rows is None:
        assert data.split is None
    else:
        assert (data.split == "train").sum() == train_rows
        assert (data.split[:train_rows] == "train").all()
    info = next(info for info in list_datasets() if info.name == name)
    assert (info.rows, info.columns, info.classes) == (rows, columns, len(data.classes))
    assert info.location is not None


@needs_data
def test_adult_codings_agree_row_by_row():
    coded, raw = load_dataset("adult"), load_dataset("adult-raw")
    np.testing.assert_array_equal(coded.y, raw.y)
    np.testing.assert_array_equal(coded.split, raw.split)
    assert len(raw.table) == raw.schema.rows
    np.testing.assert_array_equal(raw.schema.encoder().fit(raw.table.iloc[:0]).transform(raw.table), raw.X)


@needs_data
def test_ijcnn1_base_rates_of_both_parts():
    data = load_dataset("ijcnn1")
    assert data.bounds == (-1.0, 1.0)
    assert data.y[data.split == "train"].mean() == pytest.approx(0.0971, abs=5e-5)
    assert data.y[data.split == "test"].mean() == pytest.approx(0.0950, abs=5e-5)


@needs_data
def test_acs_income_says_what_it_is_and_takes_another_threshold():
    data = load_dataset("acs-income", threshold=50_000)
    assert data.y.mean() == pytest.approx(0.3371, abs=5e-5)
    assert "not IPUMS-US" in data.notes


@needs_data
def test_cifar10_pixels_are_the_published_ones():
    data = load_dataset("cifar10", flatten=False, dtype="float32")
    assert data.X.shape == (20_000, 32, 32, 3)
    assert data.X.dtype == np.float32
    test = data.split == "test"
    assert np.rint(255 * data.X[0, 0, 0]).tolist() == [59, 62, 63]
    assert np.rint(255 * data.X[test][0, 0, 0]).tolist() == [158, 112, 49]
    assert data.y[:5].tolist() == [6, 9, 9, 4, 1]
    assert np.bincount(data.y[test]).tolist() == [1000] * 10


@needs_data
def test_bank_coding_from_the_public_table_equals_the_packed_one():
    raw = pd.read_csv(Path(DATA) / "bank_full.csv.gz", sep=";", keep_default_na=False)
    with np.load(Path(DATA) / "bank_dpagd.npz") as packed:
        np.testing.assert_array_equal(code_bank(raw), packed["X"])
        assert list(BANK_BOUNDS) == packed["names"].tolist()


def public_adult(folder):
    with np.load(folder / "a9a.npz") as packed:
        texts = [
            "".join(
                f"{'+1' if label > 0 else '-1'} {' '.join(f'{j + 1}:1' for j in np.flatnonzero(row))} \n"
                for row, label in zip(packed[f"X_{part}"], packed[f"y_{part}"], strict=True)
            ).encode()
            for part in ("train", "test")
        ]
    return dict(zip(("a9a", "a9a.t"), texts, strict=True))


def public_adult_raw(folder):
    table = pd.read_csv(folder / "adult.csv.gz", dtype=str, keep_default_na=False)
    lines = [", ".join(row) for row in table.drop(columns="split").itertuples(index=False)]
    train = "".join(f"{line}\n" for line in lines[:32_561]) + "\n"
    test = "|1x3 Cross validator\n" + "".join(f"{line}.\n" for line in lines[32_561:]) + "\n"
    return {"adult.data": train.encode(), "adult.test": test.encode()}


def public_bank(folder):
    text = gzip.decompress((folder / "bank_full.csv.gz").read_bytes())
    return {"bank+marketing.zip": zipped("bank.zip", zipped("bank-full.csv", text))}


def public_kddcup99(folder):
    return {"kddcup.data_10_percent.gz": (folder / "kddcup99_10_percent.csv.gz").read_bytes()}


def zipped(member, content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(member, content)
    return stream.getvalue()


@pytest.mark.usefixtures("bare")
@needs_data
@pytest.mark.parametrize("rebuild", [public_adult_raw, public_bank])
def test_public_files_pass_their_checksums_and_give_the_same_data(rebuild, monkeypatch):
    name = rebuild.__name__.removeprefix("public_").replace("_", "-")
    files = rebuild(Path(DATA))
    origin = {info.name: info for info in list_datasets()}[name]
    web = Web({url: files[url.rsplit("/", 1)[1]] for url in origin.urls})
    monkeypatch.setattr(store, "open_url", web)
    downloaded = load_dataset(name)
    assert sorted(web.asked) == sorted(origin.urls)
    monkeypatch.setenv("DPDESCENT_DATA", DATA)
    packed = load_dataset(name)
    np.testing.assert_array_equal(downloaded.X, packed.X)
    np.testing.assert_array_equal(downloaded.y, packed.y)
    assert downloaded.feature_names == packed.feature_names
    if packed.split is not None:
        np.testing.assert_array_equal(downloaded.split, packed.split)


# ---------------------------------------------------------------- public formats on small files


@pytest.mark.usefixtures("bare")
def test_libsvm_text_is_read(tmp_path, monkeypatch):
    offline_folder(tmp_path, monkeypatch, "adult", {"a9a": b"-1 3:1 123:1 \n+1 1:1\n", "a9a.t": b"+1 2:1 \n"})
    data = load_dataset("adult", download=False)
    assert data.X.shape == (3, 123)
    assert [np.flatnonzero(row).tolist() for row in data.X] == [[2, 122], [0], [1]]
    assert data.y.tolist() == [0, 1, 1]
    assert data.split.tolist() == ["train", "train", "test"]


@pytest.mark.usefixtures("bare")
def test_compressed_libsvm_text_is_read_and_clipped(tmp_path, monkeypatch):
    files = {"ijcnn1.bz2": bz2.compress(b"-1 6:1 22:-0.5\n"), "ijcnn1.t.bz2": bz2.compress(b"1 1:1.3 2:-7\n")}
    offline_folder(tmp_path, monkeypatch, "ijcnn1", files)
    data = load_dataset("ijcnn1", download=False)
    assert data.X[0, [5, 21]].tolist() == [1.0, -0.5]
    assert data.X[1, :3].tolist() == [1.0, -1.0, 0.0]
    assert data.y.tolist() == [0, 1]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("text", [b"-1 124:1\n", b"-1 0:1\n", b"3 1:1\n", b"-1 one:1\n", b"\x1f\x8bcut"])
def test_damaged_libsvm_text_is_refused(text, tmp_path, monkeypatch):
    offline_folder(tmp_path, monkeypatch, "adult", {"a9a": text, "a9a.t": b"+1 2:1\n"})
    with pytest.raises(DatasetFormatError):
        load_dataset("adult", download=False)


@pytest.mark.usefixtures("bare")
def test_uci_adult_text_is_read(tmp_path, monkeypatch):
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Husband, White, Male, 2174, 0, 40, United-States"
    files = {
        "adult.data": f"{row}, <=50K\n{row}, >50K\n\n".encode(),
        "adult.test": f"|1x3 Cross validator\n{row}, >50K.\n\n".encode(),
    }
    offline_folder(tmp_path, monkeypatch, "adult-raw", files)
    data = load_dataset("adult-raw", download=False)
    assert data.y.tolist() == [0, 1, 1]
    assert data.split.tolist() == ["train", "train", "test"]
    named = dict(zip(data.feature_names, data.X[0], strict=True))
    assert named["age"] == (39 - 17) / (90 - 17)
    assert named["occupation=?"] == 1
    assert named["occupation=Sales"] == 0
    assert "fnlwgt" not in named
    assert data.X[0].sum() == pytest.approx(8 + 22 / 73 + 12 / 15 + 2174 / 99999 + 39 / 98)
    assert data.table["fnlwgt"].tolist() == [77516] * 3


@pytest.mark.usefixtures("bare")
def test_uci_bank_archive_is_read(tmp_path, monkeypatch):
    text = (
        b'"age";"job";"marital";"education";"default";"balance";"housing";"loan";"contact";"day";"month";"duration";'
        b'"campaign";"pdays";"previous";"poutcome";"y"\n'
        b'58;"management";"married";"tertiary";"no";2143;"yes";"no";"unknown";5;"may";261;1;-1;0;"unknown";"no"\n'
        b'30;"unknown";"divorced";"unknown";"yes";-10;"no";"yes";"cellular";31;"dec";99;3;90;2;"success";"yes"\n'
    )
    files = {"bank+marketing.zip": zipped("bank.zip", zipped("bank-full.csv", text))}
    offline_folder(tmp_path, monkeypatch, "bank", files)
    data = load_dataset("bank", download=False)
    assert data.y.tolist() == [0, 1]
    first, second = (dict(zip(data.feature_names, row, strict=True)) for row in data.X)
    ones = {name for name, value in first.items() if value == 1}
    assert ones == {"job=management", "marital=married", "education=tertiary", "housing=yes"}
    assert first["30*month+day"] == (155 - 31) / 360
    assert first["balance"] == (2143 + 8019) / (102_127 + 8019)
    assert second["30*month+day"] == 1
    assert second["pdays!=-1"] == second["poutcome=success"] == second["default=yes"] == 1
    assert second["max(pdays,0)"] == 90 / 871


@pytest.mark.usefixtures("bare")
def test_uci_covertype_text_is_read(tmp_path, monkeypatch):
    cells = [*(round(high) for _, high in COVERTYPE_BOUNDS.values())]
    rows = [",".join(map(str, [*cells[:10], 1, 0, 0, 0, *[0] * 39, 1, label])) for label in (2, 7, 1)]
    offline_folder(
        tmp_path, monkeypatch, "covertype", {"covtype.data.gz": gzip.compress("\n".join(rows).encode() + b"\n")}
    )
    data = load_dataset("covertype", download=False)
    assert data.X.shape == (2, 54)
    assert data.X[0].sum() == 12
    assert data.y.tolist() == [1, 0]
    everything = load_dataset("covertype", download=False, all_classes=True)
    assert everything.y.tolist() == [2, 7, 1]
    assert everything.classes == (1, 2, 3, 4, 5, 6, 7)
    np.testing.assert_array_equal(everything.X[[0, 2]], data.X)


@pytest.mark.usefixtures("bare")
def test_kddcup99_text_is_read_with_the_documented_scaling(tmp_path, monkeypatch):
    values = dict.fromkeys(KDD_COLUMNS, "0")
    values |= {"protocol_type": "tcp", "service": "aol", "flag": "SF", "src_bytes": "255", "count": "511"}
    rows = [",".join((values | {"label": label}).values()) for label in ("normal.", "smurf.")]
    content = gzip.compress("\n".join(rows).encode() + b"\n")
    offline_folder(tmp_path, monkeypatch, "kddcup99", {"kddcup.data_10_percent.gz": content})
    data = load_dataset("kddcup99", download=False)
    assert data.X.shape == (2, 122)
    assert data.y.tolist() == [0, 1]
    named = dict(zip(data.feature_names, data.X[0], strict=True))
    assert named["src_bytes"] == pytest.approx(8 / 32)
    assert named["count"] == named["service=aol"] == 1
    assert "log(1 + x)" in data.notes


@pytest.mark.usefixtures("bare")
def test_kddcup99_dos_tells_denial_of_service_from_other_attacks(tmp_path, monkeypatch):
    values = dict.fromkeys(KDD_COLUMNS, "0") | {"protocol_type": "tcp", "service": "aol", "flag": "SF"}
    dos = ["back.", "land.", "neptune.", "pod.", "smurf.", "teardrop."]
    rows = [",".join((values | {"label": label}).values()) for label in ("normal.", "satan.", "perl.", *dos)]
    content = gzip.compress("\n".join(rows).encode() + b"\n")
    offline_folder(tmp_path, monkeypatch, "kddcup99-dos", {"kddcup.data_10_percent.gz": content})
    data = load_dataset("kddcup99-dos", download=False)
    assert data.y.tolist() == [0, 0, 0, *[1] * 6]
    assert "denial of service" in data.notes


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("columns", [41, 43])
def test_kddcup99_text_with_another_number_of_columns_is_refused(columns, tmp_path, monkeypatch):
    content = gzip.compress((",".join(["0"] * columns) + "\n").encode())
    offline_folder(tmp_path, monkeypatch, "kddcup99", {"kddcup.data_10_percent.gz": content})
    with pytest.raises(DatasetFormatError, match=f"{columns} columns instead of 42|not the comma-separated"):
        load_dataset("kddcup99", download=False)


def idx_files(images, labels):
    compressed_images, compressed_labels = gzip.compress(idx(images)), gzip.compress(idx(labels))
    return {
        "train-images-idx3-ubyte.gz": compressed_images,
        "train-labels-idx1-ubyte.gz": compressed_labels,
        "t10k-images-idx3-ubyte.gz": compressed_images,
        "t10k-labels-idx1-ubyte.gz": compressed_labels,
    }


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_are_read(name, tmp_path, monkeypatch):
    images = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(2, 28, 28)
    offline_folder(tmp_path, monkeypatch, name, idx_files(images, np.array([3, 9], dtype=np.uint8)))
    data = load_dataset(name, download=False)
    np.testing.assert_array_equal(data.X[:2], images.reshape(2, -1) / 255)
    assert data.y.tolist() == [3, 9, 3, 9]
    assert data.split.tolist() == ["train", "train", "test", "test"]
    assert load_dataset(name, flatten=False).X.shape == (4, 28, 28)
    with pytest.raises(InvalidParameter, match="float64 or float32"):
        load_dataset(name, dtype="int8")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"\1" + raw[1:], lambda raw: raw[:3]])
def test_damaged_idx_file_is_refused(damage, tmp_path, monkeypatch):
    files = idx_files(np.zeros((2, 28, 28), dtype=np.uint8), np.zeros(2, dtype=np.uint8))
    files["train-images-idx3-ubyte.gz"] = damage(idx(np.zeros((2, 28, 28), dtype=np.uint8)))
    offline_folder(tmp_path, monkeypatch, "mnist", files)
    with pytest.raises(DatasetFormatError, match="IDX"):
        load_dataset("mnist", download=False)


def cifar_archive(parts):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.usefixtures("bare")
def test_cifar_binary_archive_is_read_in_batch_order(tmp_path, monkeypatch):
    def record(label, red, green, blue):
        return bytes([label]) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024

    parts = {
        "test_batch.bin": record(7, 0, 0, 255),
        "data_batch_2.bin": record(2, 0, 255, 0),
        "data_batch_1.bin": record(1, 255, 0, 0),
        "readme.html": b"text",
    }
    offline_folder(tmp_path, monkeypatch, "cifar10", {"cifar-10-binary.tar.gz": cifar_archive(parts)})
    data = load_dataset("cifar10", flatten=False, download=False)
    assert data.y.tolist() == [1, 2, 7]
    assert data.split.tolist() == ["train", "train", "test"]
    np.testing.assert_array_equal(data.X[:, 5, 9], np.eye(3))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "content",
    [b"no archive", cifar_archive({"data_batch_1.bin": bytes(3073)}), cifar_archive({"test_batch.bin": bytes(7)})],
)
def test_damaged_cifar_archive_is_refused(content, tmp_path, monkeypatch):
    offline_folder(tmp_path, monkeypatch, "cifar10", {"cifar-10-binary.tar.gz": content})
    with pytest.raises(DatasetFormatError):
        load_dataset("cifar10", download=False)


# ---------------------------------------------------------------- look-up and download


@pytest.mark.parametrize("name", [info.name for info in list_datasets() if info.urls])
def test_without_copy_and_network_the_error_names_both_ways(name, bare, monkeypatch):
    monkeypatch.setattr(store, "open_url", Web({}))
    info = next(info for info in list_datasets() if info.name == name)
    with pytest.raises(DatasetNotAvailable) as caught:
        load_dataset(name)
    message = str(caught.value)
    assert "set DPDESCENT_DATA to a folder that has " + info.files[0] in message
    assert "connect to the network and run again" in message
    assert info.urls[0] in message
    assert "no route to host" in message
    assert not [path for path in bare.rglob("*") if path.is_file()]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", ["ipums-br", "acs-income"])
def test_without_public_download_the_error_says_so(name, monkeypatch):
    web = Web({})
    monkeypatch.setattr(store, "open_url", web)
    monkeypatch.setenv("DPDESCENT_DATA", "/nowhere")
    with pytest.raises(DatasetNotAvailable, match="no stable public download") as caught:
        load_dataset(name)
    assert "it is set to '/nowhere', which does not have it" in str(caught.value)
    assert web.asked == []


@pytest.mark.usefixtures("bare")
def test_download_can_be_forbidden(monkeypatch):
    web = Web({})
    monkeypatch.setattr(store, "open_url", web)
    with pytest.raises(DatasetNotAvailable, match="a9a"):
        load_dataset("adult", download=False)
    assert web.asked == []


IJCNN1 = {
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/ijcnn1.bz2": bz2.compress(b"-1 1:0.5\n"),
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/ijcnn1.t.bz2": bz2.compress(b"+1 2:0.5\n"),
}


@pytest.mark.parametrize("part", [0, 1])
def test_ijcnn1_is_checked_by_its_rows_however_their_numbers_are_written(part, tmp_path):
    try:
        data, remote = load_dataset("ijcnn1"), IJCNN1_ORIGIN.remotes[part]
    except DatasetNotAvailable as missing:
        pytest.skip(str(missing))
    packed = np.load(find_local("ijcnn1", IJCNN1_ORIGIN).paths[0])
    X, y = (packed[f"{name}_{('train', 'test')[part]}"] for name in "Xy")
    assert len(X) == np.count_nonzero(data.split == ("train", "test")[part])
    assert rows_digest(X, y) == remote.rows_sha256
    moved = X.copy()
    moved[17, 20] += 1e-6
    assert rows_digest(moved, y) != remote.rows_sha256
    assert rows_digest(X, -y) != remote.rows_sha256
    text = tmp_path / "some.bz2"
    text.write_bytes(bz2.compress(b"-1 1:0.500000 22:-1\n+1 2:.25\n"))
    rows = np.zeros((2, 22))
    rows[0, [0, 21]], rows[1, 1] = (0.5, -1.0), 0.25
    assert rows_digest(*read_libsvm(text, 22)) == rows_digest(rows, np.array([-1, 1]))


@pytest.mark.parametrize("sent", [b"-1 1:0.5\n", b"no rows"])
def test_a_download_whose_rows_are_others_is_thrown_away(sent, bare, monkeypatch):
    monkeypatch.setattr(store, "open_url", Web(dict.fromkeys(IJCNN1, bz2.compress(sent))))
    with pytest.raises(ChecksumMismatch, match=r"ijcnn1\.bz2.*not the published file"):
        load_dataset("ijcnn1")
    assert list((bare / "ijcnn1").iterdir()) == []


@pytest.fixture
def unchecked(monkeypatch):
    """Let short files stand in for those that are published."""
    monkeypatch.setattr(store, "_verify", lambda *_: None)


@pytest.mark.usefixtures("unchecked")
def test_download_happens_once_and_reports_progress(bare, monkeypatch):
    web = Web(IJCNN1)
    monkeypatch.setattr(store, "open_url", web)
    seen = []
    data = load_dataset("ijcnn1", progress=lambda *report: seen.append(report))
    assert data.X.shape == (2, 22)
    sizes = [len(content) for content in IJCNN1.values()]
    assert seen == [("ijcnn1.bz2", sizes[0], sizes[0]), ("ijcnn1.t.bz2", sizes[1], sizes[1])]
    assert sorted(path.name for path in (bare / "ijcnn1").iterdir()) == ["ijcnn1.bz2", "ijcnn1.t.bz2"]
    load_dataset("ijcnn1")
    assert len(web.asked) == 2
    assert next(info for info in list_datasets() if info.name == "ijcnn1").location == bare / "ijcnn1"


@pytest.mark.usefixtures("bare", "unchecked")
def test_interrupted_data_set_resumes_with_the_file_it_lacks(monkeypatch):
    first, second = IJCNN1
    monkeypatch.setattr(store, "open_url", Web({first: IJCNN1[first]}))
    with pytest.raises(DatasetNotAvailable):
        load_dataset("ijcnn1")
    web = Web({second: IJCNN1[second]})
    monkeypatch.setattr(store, "open_url", web)
    assert load_dataset("ijcnn1").X.shape == (2, 22)
    assert web.asked == [second]


def test_changed_file_is_refused_and_thrown_away(bare, monkeypatch):
    base = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
    monkeypatch.setattr(store, "open_url", Web({base + "a9a": b"-1 1:1\n", base + "a9a.t": b"-1 1:1\n"}))
    with pytest.raises(ChecksumMismatch, match="not the published file"):
        load_dataset("adult")
    assert list((bare / "adult").iterdir()) == []


@pytest.mark.usefixtures("bare", "unchecked")
def test_offline_copy_wins_over_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "open_url", Web(IJCNN1))
    assert load_dataset("ijcnn1").y.tolist() == [0, 1]
    files = {"ijcnn1.bz2": bz2.compress(b"+1 1:1\n"), "ijcnn1.t.bz2": bz2.compress(b"+1 1:1\n")}
    offline_folder(tmp_path, monkeypatch, "ijcnn1", files)
    assert load_dataset("ijcnn1").y.tolist() == [1, 1]


URL = "https://example.org/file.gz"
MIRROR = "https://mirror.example.org/file.gz"


def remote(content, *urls, **checks):
    return Remote("file.gz", urls or (URL,), content_sha256=hashlib.sha256(content).hexdigest(), **checks)


def test_broken_off_download_leaves_no_file(tmp_path):
    web = Web({URL: Answer(b"half", URL, length=8)})
    with pytest.raises(OSError, match="broke off after 4 of 8 bytes"):
        fetch(remote(b"half"), tmp_path, opener=web)
    assert list(tmp_path.iterdir()) == []


def test_redirect_away_from_https_is_refused(tmp_path):
    web = Web({URL: Answer(b"content", "http://example.org/file.gz")})
    with pytest.raises(OSError, match="without https"):
        fetch(remote(b"content"), tmp_path, opener=web)
    with pytest.raises(OSError, match="not an https address"):
        fetch(remote(b"content", "http://example.org/file.gz"), tmp_path, opener=web)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first", [b"something else", urllib.error.URLError("down"), TimeoutError("slow")])
def test_mirror_is_tried_when_the_first_address_fails(first, tmp_path):
    web = Web({URL: first, MIRROR: gzip.compress(b"content")})
    path = fetch(remote(b"content", URL, MIRROR), tmp_path, opener=web)
    assert gzip.decompress(path.read_bytes()) == b"content"
    assert web.asked == [URL, MIRROR]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.gz"]


def test_interruption_leaves_no_partial_file(tmp_path):
    class Stopped(Answer):
        def read(self, *_):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(remote(b""), tmp_path, opener=Web({URL: Stopped(b"content", URL)}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("bare")
def test_unknown_names_and_options_are_refused():
    with pytest.raises(UnknownDataset, match="adult-raw"):
        load_dataset("adults")
    with pytest.raises(InvalidParameter, match="takes n, seed"):
        load_dataset("synthetic", rows=10)
    with pytest.raises(InvalidParameter, match="takes none"):
        load_dataset("adult", n=10)
    with pytest.raises(DatasetNotAvailable, match="correct the path"):
        load_dataset("nowhere.csv")


def test_schema_levels_are_constants_of_the_documentation():
    encoder = ADULT_SCHEMA.encoder().fit({name: [] for name in ADULT_SCHEMA.features})
    assert len(encoder.get_feature_names_out()) == 107


# ---------------------------------------------------------------- synthetic


def test_synthetic_is_deterministic_and_a_short_table_begins_a_long_one():
    first, again, other = (load_dataset("synthetic", n=500, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.X, again.X)
    pd.testing.assert_frame_equal(first.table, again.table)
    assert not np.array_equal(first.X, other.X)
    pd.testing.assert_frame_equal(load_dataset("synthetic", n=800, seed=3).table.iloc[:500], first.table)


EXPECTED_AGES = [44, 17, 46]
EXPECTED_OCCUPATIONS = ["sales", "sales", "technical"]
EXPECTED_PROBABILITIES = [0.200687983056, 0.040223463051, 0.59182138153]


def test_synthetic_stream_does_not_drift():
    table, probability = synthetic_table(3, seed=0)
    assert table["age"].tolist() == EXPECTED_AGES
    assert table["occupation"].tolist() == EXPECTED_OCCUPATIONS
    assert probability == pytest.approx(EXPECTED_PROBABILITIES, rel=1e-9)


def test_synthetic_base_rate_and_best_accuracy():
    table, probability = synthetic_table(200_000, seed=1)
    # Five standard errors of a mean of 200,000 values in [0, 1] are below 0.006.
    assert table["high_income"].mean() == pytest.approx(0.25, abs=0.006)
    assert np.maximum(probability, 1 - probability).mean() == pytest.approx(0.85, abs=0.006)


def test_synthetic_label_is_learnable_from_the_encoded_columns():
    data = load_dataset("synthetic")
    train, test = slice(0, 15_000), slice(15_000, None)
    model = LogisticRegression(max_iter=1000).fit(data.X[train], data.y[train])
    majority = 1 - data.y[test].mean()
    accuracy = model.score(data.X[test], data.y[test])
    assert accuracy > majority + 0.06
    assert 0.82 < accuracy < 0.87


def test_synthetic_table_obeys_its_schema():
    data = load_dataset("synthetic", n=1000)
    assert tuple(data.table.columns) == (*data.schema.features, "high_income")
    for column in data.schema.numeric:
        assert data.table[column.name].between(column.low, column.high).all()
    levels = ["=" in name for name in data.feature_names]
    np.testing.assert_array_equal(data.binary_features, levels)
    np.testing.assert_array_equal(data.schema.encoder().fit_transform(data.table), data.X)
    with pytest.raises(InvalidParameter, match="n must be"):
        load_dataset("synthetic", n=0)
    with pytest.raises(InvalidParameter, match="seed must be"):
        load_dataset("synthetic", seed=-1)


# ---------------------------------------------------------------- files of the caller

SCHEMA = Schema(
    (NumericColumn("age", 0, 100), CategoricalColumn("state", ("NA", "SA")), IgnoredColumn("id")),
    Label("sick", ("no", "yes")),
)
TABLE = pd.DataFrame({"id": ["a", "b"], "age": [25, 150], "state": ["NA", "SA"], "sick": ["no", "yes"]})


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_table_file_with_schema_loads(suffix, tmp_path):
    path = tmp_path / f"private{suffix}"
    TABLE.to_parquet(path) if suffix == ".parquet" else TABLE.to_csv(path, index=False)
    SCHEMA.dump(tmp_path / "schema.json")
    for schema in (SCHEMA, tmp_path / "schema.json", str(tmp_path / "schema.json")):
        data = load_dataset(path, schema=schema)
        assert data.X.tolist() == [[0.25, 1, 0], [1, 0, 1]]
        assert data.y.tolist() == ["no", "yes"]
        assert data.classes == ("no", "yes")
        assert "id" not in data.table


def test_table_file_without_schema_or_column_is_refused(tmp_path):
    path = tmp_path / "private.csv"
    TABLE.drop(columns="age").to_csv(path, index=False)
    with pytest.raises(InvalidParameter, match=r"dpdescent schema .* --label COLUMN"):
        load_dataset(str(path))
    with pytest.raises(MissingColumn, match="age"):
        load_dataset(path, schema=SCHEMA)
    with pytest.raises(InvalidParameter, match="schema instead of bounds"):
        load_dataset(path, schema=SCHEMA, bounds=(0, 1))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ragged.csv", b"age,state,sick\n1,NA,no\n1,secret,no,4,5\n"),
        ("wide.csv", b"age,state,sick\nsecret,1,NA,no\nsecret,1,SA,no\n"),
        ("cut.csv.gz", gzip.compress(b"age,state,sick\n1,secret,no\n", mtime=0)[:-9]),
        ("empty.csv", b""),
        ("noise.parquet", b"secret"),
    ],
)
def test_damaged_table_file_is_refused_without_showing_it(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetFormatError) as caught:
        load_dataset(tmp_path / name, schema=SCHEMA)
    assert "secret" not in str(caught.value)


def test_text_in_a_numeric_column_of_a_file_is_not_shown(tmp_path):
    (tmp_path / "private.csv").write_bytes(b"age,state,sick\nsecret,NA,no\n1,SA,no\n")
    with pytest.raises(ColumnTypeError, match="'age'") as caught:
        load_dataset(tmp_path / "private.csv", schema=SCHEMA)
    assert "secret" not in str(caught.value)


def test_npz_file_needs_public_bounds_and_classes(tmp_path):
    path = tmp_path / "private.npz"
    np.savez(path, X=np.array([[1, -5], [3, 50]]), y=np.array([0, 1]))
    data = load_dataset(path, bounds=([0, -10], [4, 10]), classes=[0, 1])
    assert data.X.tolist() == [[0.25, 0.25], [0.75, 1]]
    assert load_dataset(path, bounds=(0, 100), classes=[0, 1]).X.tolist() == [[0.01, 0], [0.03, 0.5]]
    with pytest.raises(InvalidParameter, match="never read from the file"):
        load_dataset(path)
    with pytest.raises(InvalidParameter, match="low < high"):
        load_dataset(path, bounds=(1, 1), classes=[0, 1])
    with pytest.raises(InvalidParameter, match="2 numbers each"):
        load_dataset(path, bounds=([0, 0, 0], [1, 1, 1]), classes=[0, 1])
    with pytest.raises(UnknownLevel, match="1 public classes"):
        load_dataset(path, bounds=(0, 1), classes=[0])


def test_npz_file_with_missing_or_pickled_cells_is_refused(tmp_path):
    path = tmp_path / "private.npz"
    np.savez(path, X=np.array([[np.nan]]), y=np.array([0]))
    with pytest.raises(MissingValue):
        load_dataset(path, bounds=(0, 1), classes=[0, 1])
    np.savez(path, X=np.array([[{}]], dtype=object), y=np.array([0]))
    with pytest.raises(DatasetFormatError, match="plain arrays"):
        load_dataset(path, bounds=(0, 1), classes=[0, 1])
    np.savez(path, X=np.zeros((2, 2)), y=np.zeros(3))
    with pytest.raises(DatasetFormatError, match="differ in length"):
        load_dataset(path, bounds=(0, 1), classes=[0, 1])
