"""What the comments at the top of a kernel file say."""

import pytest

from minitorch_backend.kernels import files

BODY = "void silu(Tensor out, Tensor x) {}\n"
HEADERS = {
    "plain": (f"// operator: aten::silu\n// dtypes: float32, bfloat16\n{BODY}",
              {"operator": "aten::silu", "dtypes": "float32, bfloat16"}),
    "strided, and a comment after it": (f"// operator: aten::silu\n// strided\n// by rows\n{BODY}",
                                        {"operator": "aten::silu", "strided": ""}),
    "strided before the operator": ("// strided\n// operator: aten::silu\n", {"strided": "", "operator": "aten::silu"}),
    "not strided": ("// operator: aten::silu\n// strided: false\n", {"operator": "aten::silu", "strided": "false"}),
    "further down": (f"// operator: aten::silu\n{BODY}// operator: aten::exp\n// dtypes: int64\n// strided\n",
                     {"operator": "aten::silu"}),
    "only further down": (f"{BODY}// operator: aten::exp\n", {}),
    "after an include": ("#include <cmath>\n// operator: aten::exp\n", {}),
    "prose": ("// operator precedence matters\n// strided access is slow\n// dtypes of all kinds\n", {}),
    "a license first": ("/* A license,\n * operator: none */\n\n  // operator: aten::silu\n", {"operator": "aten::silu"}),
    "code after a license": ("/* mine */ int x;\n// operator: aten::silu\n", {}),
    "lines of another system": ("// operator: aten::silu\r\n// strided: true\r\n",
                                {"operator": "aten::silu", "strided": "true"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_only_comments_before_the_code_count(name):
    text, says = HEADERS[name]
    assert files.header(text) == says


@pytest.mark.parametrize(
    "strided,expected", [("", False), ("// strided\n// rows\n", True), ("// strided: no\n", False)]
)
def test_a_file_is_strided_where_it_says_so(tmp_path, monkeypatch, strided, expected):
    made = []
    monkeypatch.setattr(files.kernels, "override", lambda name, **given: made.append((name, given)))
    (tmp_path / "k.cpp").write_text(f"// operator: aten::silu\n{strided}{BODY}// strided\n")
    files.load(tmp_path / "k.cpp")
    ((name, given),) = made
    assert name == "aten::silu" and given["strided"] is expected


@pytest.mark.parametrize(
    "line,says",
    [("// strided: rows", "neither true nor false"), ("// operator: aten::exp", "'// operator' is there twice")],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path, line, says):
    (tmp_path / "k.cpp").write_text(f"// operator: aten::silu\n{line}\n{BODY}")
    with pytest.raises(ValueError, match=rf"k\.cpp: .*{says}"):
        files.load(tmp_path / "k.cpp")
