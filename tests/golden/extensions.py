"""Values of the types of pgvector and PostGIS, as :mod:`tests.golden.cases` has those of Postgres' own."""

from __future__ import annotations

__all__ = ["CASES", "LARGE", "SETUP"]

SETUP = (
    "CREATE EXTENSION IF NOT EXISTS vector",
    "CREATE EXTENSION IF NOT EXISTS postgis",
    "CREATE DOMAIN embedding AS vector(3)",
    "CREATE DOMAIN place AS geometry(Point,4326)",
    "CREATE DOMAIN outline AS geometry(LineString)",
)

_SHAPES = (
    "POINT(1.5 -2.25)",
    "POINT(0.1 1e-300)",
    "POINT(NaN NaN)",
    "POINT EMPTY",
    "SRID=4326;POINT(13.4 52.5)",
    "SRID=4326;POINT EMPTY",
    "POINT Z (1 2 3)",
    "POINT M (1 2 3)",
    "SRID=3857;POINT ZM (1 2 3 4)",
    "LINESTRING(0 0, 1 1, 2 0)",
    "LINESTRING EMPTY",
    "POLYGON((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))",
    "MULTIPOINT((0 0), (1 1))",
    "MULTILINESTRING Z ((0 0 1, 1 1 2), (2 2 3, 3 3 4))",
    "SRID=4326;MULTIPOLYGON(((0 0, 1 0, 1 1, 0 0)), EMPTY)",
    "GEOMETRYCOLLECTION EMPTY",
    "SRID=4326;GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1), GEOMETRYCOLLECTION(POINT EMPTY))",
    "CIRCULARSTRING(0 0, 1 1, 2 0)",
    "CURVEPOLYGON(CIRCULARSTRING(0 0, 4 0, 4 4, 0 4, 0 0))",
    "TIN(((0 0, 0 1, 1 0, 0 0)))",
    "POLYHEDRALSURFACE Z (((0 0 0, 0 1 0, 1 1 0, 0 0 0)))",
)

CASES: dict[str, tuple[str, ...]] = {
    "vector": (
        "'[1,2.5,0.1]'",
        "'[1e20,-1e-10,1000000,-0]'",
        "'[3.4028235e38,1.1754944e-38,1e-45,16777217]'",
        "ARRAY(SELECT (i * 0.001)::real FROM generate_series(1, 384) i)",
    ),
    "vector(3)": ("'[1,2,3]'",),
    "embedding": ("'[0.1,0.2,0.3]'",),
    "halfvec": ("'[0.1,65504,1e-7,-0]'", "ARRAY(SELECT (i * 0.1)::real FROM generate_series(1, 384) i)"),
    "halfvec(2)": ("'[1,-2.5]'",),
    "sparsevec": ("'{1:1.5,3:2}/5'", "'{32768:1}/40000'"),
    "sparsevec(5)": ("'{1:1.5,3:-0.1}/5'", "'{}/5'"),
    "sparsevec(32767)": (
        "'{32767:1e-45,2:1000000,1:1e20,5:123456.7,10:0.0001,9:0.00001,300:3.4028235e38}/32767'",
    ),
    "sparsevec(32768)": ("'{32768:1}/32768'", "'{1:1}/32768'"),
    "vector[]": ("ARRAY['[1,2]'::vector]",),
    "geometry": tuple(f"'{shape}'" for shape in _SHAPES),
    "geometry(Point,4326)": ("'SRID=4326;POINT(13.4 52.5)'",),
    "geometry(LineStringZM)": ("'LINESTRING ZM (1 2 3 4, 5 6 7 8)'",),
    "place": ("'SRID=4326;POINT(0 0)'",),
    "geography": (
        "'POINT(13.4 52.5)'",
        "'POINT EMPTY'",
        "'POINT Z (1 2 3)'",
        "'SRID=4267;POINT(1 2)'",
        "'POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))'",
        "'GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))'",
    ),
    "geography(Point,4326)": ("'POINT(13.4 52.5)'",),
    "geometry[]": ("ARRAY['POINT(1 2)'::geometry]",),
    "box2d": ("'BOX(0 0, 1 1)'",),
    "box3d": ("'BOX3D(0 0 0, 1 1 1)'",),
}
"""SQL type → literals of it."""

_MANY = "ARRAY(SELECT i::real FROM generate_series(1, 2000) i)"
_LINE = (
    "(SELECT ST_MakeLine(ST_SetSRID(ST_MakePoint(i / 100.0, i / 200.0), 4326))"
    " FROM generate_series(1, 2000) i)"
)

LARGE: dict[str, str] = {
    "vector": _MANY,
    "vector(1536)": "ARRAY(SELECT (i * 0.001)::real FROM generate_series(1, 1536) i)",
    "halfvec": _MANY,
    "sparsevec(2000)": f"{_MANY}::vector(2000)",
    "geometry": _LINE,
    "outline": _LINE,
    "geometry(LineString,4326)": _LINE,
    "geography": f"{_LINE}::geography",
}
"""SQL type → a value so large that an update of another column leaves it out of the log."""
