"""Access control, limits, and hostile requests and files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from httpx import Client

from clip_making import counting, encode
from web.conftest import Serve
from web.serving import files_in, until, upload


def test_every_response_has_security_headers(client: Client) -> None:
    for path in ("/", "/static/app.js", "/api/status", "/api/clips/none", "/nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_the_page_loads_nothing_from_other_sites(client: Client) -> None:
    folder = Path(__file__).parents[2] / "src/ctsan/web/static"
    page = client.get("/").text
    assert "style=" not in page
    for file in folder.iterdir():
        text = client.get(f"/static/{file.name}").text.replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example:80"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://[::1"},
        {"Origin": "http://127.0.0.1:99999999"},
        {"Origin": ""},
        {"Host": "["},
        {"Host": "[::1]]:x"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_requests_from_other_sites_are_rejected(client: Client, headers: dict[str, str]) -> None:
    for answer in (
        client.get("/api/status", headers=headers),
        client.post("/api/clips", headers=headers, content=b""),
    ):
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "forbidden"


def test_a_token_gives_access(serve: Serve) -> None:
    with serve(token="secret-word") as client:
        for path in ("/", "/static/app.js", "/api/status", "/?token=wrong"):
            assert client.get(path).status_code == 401
        wrong = client.get("/api/status", headers={"Authorization": "Bearer secret"})
        assert wrong.status_code == 401
        right = client.get("/api/status", headers={"Authorization": "Bearer secret-word"})
        assert right.status_code == 200
        redirect = client.get("/?token=secret-word", follow_redirects=False)
        assert redirect.headers["location"] == "/"
        assert "HttpOnly" in redirect.headers["set-cookie"]
        assert client.get("/api/status").status_code == 200  # the cookie is enough


@pytest.mark.parametrize(
    "path",
    [
        "/api/clips/..%2f..%2fetc%2fpasswd",
        "/api/clips/%2e%2e/description",
        "/api/clips/..%5c..%5c/poster",
        "/api/clips/a%00b/traces",
        "/api/library/..%2f..%2fclips%2f0001.mp4/video",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/%252e%252e/app.py",
        "/static/..%5capp.py",
        "/static/%c0%ae%c0%ae/app.py",
        "/static/app.js%00.css",
        "/api/clips//etc/passwd",
        "/api/clips/none/pictures/..%2f..%2fetc%2fpasswd",
        "/api/clips/none/shots/%2fetc%2fpasswd/picture",
        "/api/library/%2fetc%2fpasswd/thumbnail",
        "/api/library/file:%2f%2f%2fetc%2fpasswd/video",
        "/api/search?like=..%2f..%2fetc%2fpasswd",
    ],
)
def test_no_path_reaches_the_disk(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 405, 422)
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_uploads_are_private_and_deleted_once_read(serve: Serve, spool: Path, clip: Path) -> None:
    with serve() as client:
        [private] = spool.iterdir()
        assert private.stat().st_mode & 0o077 == 0
        until(client, upload(client, clip), "ready")
        assert files_in(spool) == []
    assert list(spool.iterdir()) == []


def test_uploads_are_limited(serve: Serve, spool: Path, clip: Path, tmp_path: Path) -> None:
    content = clip.read_bytes()
    with serve(upload_bytes=len(content) - 1) as client:
        assert client.post("/api/clips", content=content).status_code == 413
        chunks = (content[start : start + 1000] for start in range(0, len(content), 1000))
        answer = client.post("/api/clips", content=chunks)  # without Content-Length
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "too_large"
        assert files_in(spool) == []
    with serve(seconds=1.0) as client:
        assert "seconds long" in until(client, upload(client, clip), "failed")["error"]
    with serve(pixels=48 * 64 - 1) as client:
        short = encode(tmp_path / "short.mp4", counting(12))
        assert "larger than is allowed" in until(client, upload(client, short), "failed")["error"]


def test_other_requests_are_limited_too(client: Client) -> None:
    large = {"sentences": ["a" * 400] * 400}
    assert client.post("/api/clips/none/choose", json=large).status_code == 413
    chunks = (b" " * 1000 for _ in range(100))
    answer = client.post("/api/clips/none/choose", content=chunks)
    assert answer.status_code == 413


def test_the_oldest_clips_are_removed(serve: Serve, clip: Path) -> None:
    with serve(clips=2) as client:
        ids = []
        for _ in range(3):
            ids.append(upload(client, clip))
            until(client, ids[-1], "ready")
        upload(client, clip)
        assert client.get(f"/api/clips/{ids[0]}").status_code == 404
        assert client.get(f"/api/clips/{ids[2]}").status_code == 200


def test_twenty_concurrent_clients_are_answered_or_told_to_wait(serve: Serve, clip: Path) -> None:
    content = clip.read_bytes()

    def ask(client: Client) -> list[int]:
        uploaded = client.post("/api/clips", content=content)
        if uploaded.status_code != 201:
            return [uploaded.status_code]
        clip_id = uploaded.json()["id"]
        path = f"/api/clips/{clip_id}"
        answers = [client.get(f"{path}/description"), client.post(f"{path}/fill", json={"sentence": "a __"})]
        return [answer.status_code for answer in answers]

    with serve(unread_clips=8) as client, ThreadPoolExecutor(20) as clients:
        statuses = [status for answers in clients.map(ask, [client] * 20) for status in answers]
        assert set(statuses) <= {200, 429}
        assert statuses.count(200) >= 8
        assert client.get("/api/status").status_code == 200


def test_a_server_without_a_model_for_it_says_so(serve: Serve) -> None:
    with serve() as client:
        answer = client.get("/api/search", params={"query": "a square"})
        assert answer.status_code == 409
        assert "ctsan index" in answer.json()["error"]["message"]
