"""Tables, and what can be done to each of them that Postgres does not tell in its log."""

from __future__ import annotations

__all__ = ["NAME", "QUIET", "SCHEMA", "UNTOLD"]

NAME = "watched"
SCHEMA = """
CREATE TYPE mood AS ENUM ('placed', 'paid');
CREATE TABLE labels (id int PRIMARY KEY, status mood, many mood[]);
CREATE TABLE doubled (id int PRIMARY KEY, amount numeric(12, 2) DEFAULT 1);
CREATE TABLE anew (id int PRIMARY KEY, v text);
CREATE TABLE replaced (id int PRIMARY KEY, at date);
CREATE TABLE retyped (id int PRIMARY KEY, at timestamp);
CREATE TABLE filtered (id int PRIMARY KEY, v text);
CREATE TABLE by_index (id int PRIMARY KEY, email text NOT NULL UNIQUE);
CREATE TABLE back (id int PRIMARY KEY, email text NOT NULL UNIQUE);
CREATE TABLE arrays (id int PRIMARY KEY, v text, a numeric[]);
ALTER TABLE arrays REPLICA IDENTITY FULL;
CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TABLE outside (id int PRIMARY KEY, v text);
CREATE TABLE refused (id int PRIMARY KEY, v text);
CREATE TABLE came (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE came_a PARTITION OF came FOR VALUES FROM (0) TO (100);
CREATE TABLE away (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE away_a PARTITION OF away FOR VALUES FROM (0) TO (100);
CREATE TABLE grown (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE grown_a PARTITION OF grown FOR VALUES FROM (0) TO (100);
CREATE TABLE went (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE went_a PARTITION OF went FOR VALUES FROM (0) TO (100);
CREATE TABLE went_b PARTITION OF went FOR VALUES FROM (100) TO (200);
CREATE TABLE emptied (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE emptied_a PARTITION OF emptied FOR VALUES FROM (0) TO (100);
CREATE TABLE emptied_b PARTITION OF emptied FOR VALUES FROM (100) TO (200);
CREATE TABLE halves (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE halves_a PARTITION OF halves FOR VALUES FROM (0) TO (100);
CREATE TABLE halves_b PARTITION OF halves FOR VALUES FROM (100) TO (200);
CREATE TABLE copied (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE copied_a PARTITION OF copied FOR VALUES FROM (0) TO (100);
CREATE TABLE brief (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE brief_a PARTITION OF brief FOR VALUES FROM (0) TO (100);
CREATE TABLE filled (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE filled_a PARTITION OF filled FOR VALUES FROM (0) TO (100);
CREATE TABLE north (id int PRIMARY KEY, v text);
CREATE TABLE south (id int PRIMARY KEY, v text);
CREATE TABLE elsewhere (id int PRIMARY KEY, v text);
CREATE SCHEMA aside;
CREATE TABLE moved (id int PRIMARY KEY, v text);
CREATE TYPE colour AS ENUM ('red', 'blue');
CREATE TABLE coloured (id int PRIMARY KEY, v colour);
CREATE TABLE twice (id int PRIMARY KEY, v text);
ALTER TABLE twice REPLICA IDENTITY FULL;
CREATE TABLE shared (id int PRIMARY KEY, v text);
ALTER TABLE shared REPLICA IDENTITY FULL;
CREATE TABLE loose (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE loose_a PARTITION OF loose FOR VALUES FROM (0) TO (100);
CREATE TABLE unlogged (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE unlogged_a PARTITION OF unlogged FOR VALUES FROM (0) TO (100);
CREATE TABLE renamed (id int PRIMARY KEY, v text);
CREATE TABLE rounded (id int PRIMARY KEY, amount numeric(10, 2) DEFAULT 1);
CREATE TABLE rekeyed (id int PRIMARY KEY, email text NOT NULL);
CREATE TABLE remade (id int PRIMARY KEY, email text NOT NULL);
CREATE UNIQUE INDEX remade_id ON remade (id);
ALTER TABLE remade REPLICA IDENTITY USING INDEX remade_id;
CREATE TABLE quiet (id int PRIMARY KEY, v text, n numeric(10, 2) DEFAULT 5, w varchar(10));
CREATE TABLE cut (id int PRIMARY KEY, v text);
CREATE UNIQUE INDEX cut_id ON cut (id);
ALTER TABLE cut REPLICA IDENTITY USING INDEX cut_id;
CREATE TABLE parted (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE parted_a PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted_b PARTITION OF parted FOR VALUES FROM (100) TO (200);
CREATE TABLE parted_z PARTITION OF parted FOR VALUES FROM (900) TO (999);
CREATE TABLE single (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE single_a PARTITION OF single FOR VALUES FROM (0) TO (100);
INSERT INTO labels SELECT i, 'placed', ARRAY['paid']::mood[] FROM generate_series(1, 9) i;
INSERT INTO doubled SELECT i, i FROM generate_series(1, 9) i;
INSERT INTO anew SELECT i, 'v' FROM generate_series(1, 9) i;
INSERT INTO retyped SELECT i, now() FROM generate_series(1, 9) i;
INSERT INTO filtered SELECT i, 'v' FROM generate_series(1, 9) i;
INSERT INTO by_index SELECT i, 'e' || i FROM generate_series(0, 9) i;
INSERT INTO back SELECT i, 'e' || i FROM generate_series(0, 9) i;
INSERT INTO arrays SELECT i, 'v', ARRAY[i] FROM generate_series(1, 9) i;
INSERT INTO went SELECT i * 10, 'v' FROM generate_series(1, 15) i;
INSERT INTO emptied SELECT i * 10, 'v' FROM generate_series(1, 15) i;
INSERT INTO halves SELECT i * 10, 'v' FROM generate_series(1, 15) i;
INSERT INTO single SELECT i, 'v' FROM generate_series(1, 9) i;
INSERT INTO parted SELECT i * 10, 'v' FROM generate_series(1, 15) i;
INSERT INTO rounded SELECT i, i + 0.25 FROM generate_series(1, 9) i;
INSERT INTO rekeyed SELECT i, 'e' || i FROM generate_series(1, 9) i;
INSERT INTO remade SELECT i, 'e' || i FROM generate_series(1, 9) i;
INSERT INTO quiet SELECT i, 'v' FROM generate_series(1, 9) i;
INSERT INTO shared SELECT i, 'v' FROM generate_series(1, 9) i;
INSERT INTO cut SELECT i, 'v' FROM generate_series(1, 9) i;
CREATE TABLE attached (LIKE came INCLUDING ALL);
INSERT INTO attached VALUES (150, 'had been there');
CREATE TABLE tree (LIKE came INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE tree_a PARTITION OF tree FOR VALUES FROM (100) TO (150);
INSERT INTO tree VALUES (120, 'had been there');
INSERT INTO away VALUES (1, 'before')
"""
QUIET = (
    (
        "ALTER TABLE quiet ADD COLUMN later int DEFAULT 7",
        "ALTER TABLE quiet ALTER w TYPE varchar(20)",
        "ALTER TABLE quiet ALTER v SET STATISTICS 50",
        "ALTER TABLE quiet ALTER n SET DEFAULT 6",
        "GRANT SELECT (v) ON quiet TO PUBLIC",
        "TRUNCATE cut",
        "INSERT INTO cut VALUES (1, 'after')",
        "TRUNCATE parted",
        "INSERT INTO parted VALUES (5, 'after'), (150, 'after')",
        "CREATE TABLE parted_c PARTITION OF parted FOR VALUES FROM (200) TO (300)",
        "INSERT INTO parted VALUES (250, 'new')",
        # One transaction.
        (
            "CREATE TABLE parted_d PARTITION OF parted FOR VALUES FROM (300) TO (400);"
            "INSERT INTO parted VALUES (350, 'made for it')"
        ),
        "CREATE TABLE single_b PARTITION OF single FOR VALUES FROM (200) TO (300)",
        "INSERT INTO single VALUES (250, 'goes')",
        "TRUNCATE single",
        "INSERT INTO single VALUES (5, 'after')",
    ),
    # Its number of rows is wrong after the TRUNCATE and what followed at once.
    ("ANALYZE single", "DELETE FROM single"),
    (
        "VACUUM FULL quiet",
        "CLUSTER quiet USING quiet_pkey",
        "GRANT SELECT ON quiet TO PUBLIC",
        "REINDEX TABLE quiet",
        "REINDEX TABLE CONCURRENTLY quiet",
        "REINDEX TABLE CONCURRENTLY cut",
        "REINDEX TABLE CONCURRENTLY shared",
        "VACUUM FULL shared",
        "VACUUM FULL parted",
        "VACUUM FULL single",
        "ALTER TYPE mood ADD VALUE 'sent'",
    ),
    (
        "GRANT SELECT (v) ON quiet TO PUBLIC",
        "REVOKE SELECT ON quiet FROM PUBLIC",
        # The number that it leaves in the catalogue is not the one that the log tells; nor is the next one's.
        "DO $$ BEGIN TRUNCATE single; EXCEPTION WHEN division_by_zero THEN NULL; END $$",
        "GRANT SELECT ON single_a TO PUBLIC",
    ),
)
"""What changes nothing that is mirrored, or is told by the log; a look lies between the groups."""
IN, OUT = (f"ALTER PUBLICATION headrace_{NAME} {word} TABLE" for word in ("ADD", "DROP"))
AWAY, SPAN = "PARTITION away_a", "FOR VALUES FROM (0) TO (100)"
TO, PAINT = "SET SCHEMA", "ALTER TYPE colour RENAME VALUE"
BACK_TO = f"ALTER TABLE aside.moved {TO}"
BACK = "ALTER TABLE back REPLICA IDENTITY"
KEY, NO_KEY = "ALTER TABLE rekeyed ADD PRIMARY KEY", "ALTER TABLE rekeyed DROP CONSTRAINT rekeyed_pkey"
MADE, USED = "CREATE UNIQUE INDEX", "ALTER TABLE remade REPLICA IDENTITY USING INDEX"
OTHER = f"{MADE} other_id ON remade (email); {USED} other_id"
# One transaction: what stands between semicolons without a space is not taken apart.
AGAIN = f"DROP INDEX remade_id;{MADE} remade_id ON remade (id);{USED} remade_id;DROP INDEX other_id"
UNKEYED = "ALTER TABLE shared DROP CONSTRAINT shared_pkey"
KEYED_AGAIN = "ALTER TABLE shared ADD PRIMARY KEY (id)"
NAME_OF = "ALTER TABLE renamed RENAME"
SWAP = (
    "ALTER TABLE north RENAME TO aside; ALTER TABLE south RENAME TO north; ALTER TABLE aside RENAME TO south"
)
UNTOLD = {
    "north": ("TABLE_ANEW", SWAP),
    "south": ("TABLE_ANEW", "INSERT INTO south VALUES (1, 'of the other')"),
    "labels": ("LABEL_RENAMED", "ALTER TYPE mood RENAME VALUE 'placed' TO 'received'"),
    "doubled": ("TABLE_REWRITTEN", "ALTER TABLE doubled ALTER amount TYPE numeric(12, 2) USING amount * 2"),
    "anew": ("COLUMN_ANEW", "ALTER TABLE anew DROP v, ADD v text NOT NULL DEFAULT 'gone'"),
    "retyped": ("COLUMN_RETYPED", "ALTER TABLE retyped ALTER at TYPE date USING at::date"),
    "filtered": (
        "TABLE_PUBLISHED_IN_PART",
        f"{OUT} filtered; {IN} filtered WHERE (id > 2)",
    ),
    "by_index": ("IDENTITY_WEAK", "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_email_key"),
    "back": (
        "IDENTITY_TAKEN_BACK",
        f"{BACK} USING INDEX back_email_key; DELETE FROM back WHERE id = 3; {BACK} DEFAULT",
    ),
    "rekeyed": (
        "IDENTITY_TAKEN_BACK",
        f"{NO_KEY}; {KEY} (email); DELETE FROM rekeyed WHERE id = 3; {NO_KEY}; {KEY} (id)",
    ),
    "remade": ("IDENTITY_TAKEN_BACK", f"{OTHER}; DELETE FROM remade WHERE id = 3; {AGAIN}"),
    "renamed": ("COLUMN_AWAY", f"{NAME_OF} v TO w; INSERT INTO renamed VALUES (1, 'x'); {NAME_OF} w TO v"),
    "rounded": ("COLUMN_RETYPED", "ALTER TABLE rounded ALTER amount TYPE numeric(10, 1)"),
    "arrays": ("IDENTITY_WEAK", "ALTER TABLE arrays REPLICA IDENTITY DEFAULT"),
    "parent": ("TABLE_INHERITED", "CREATE TABLE kid () INHERITS (parent)"),
    "outside": (
        "TABLE_UNPUBLISHED",
        f"{OUT} outside; INSERT INTO outside VALUES (1, 'unseen'); {IN} outside",
    ),
    "came": ("PARTITION_CAME", "ALTER TABLE came ATTACH PARTITION attached FOR VALUES FROM (100) TO (200)"),
    "filled": (
        "PARTITION_CAME",
        (
            "CREATE TABLE filled_b (LIKE filled INCLUDING ALL);INSERT INTO filled_b VALUES (150, 'untold');"
            "ALTER TABLE filled ATTACH PARTITION filled_b FOR VALUES FROM (100) TO (200)"
        ),
    ),
    "replaced": ("COLUMN_RETYPED", "ALTER TABLE replaced DROP at, ADD at timestamp"),
    "grown": ("PARTITION_CAME", "ALTER TABLE grown ATTACH PARTITION tree FOR VALUES FROM (100) TO (200)"),
    "away": (
        "PARTITION_CAME",
        f"ALTER TABLE away DETACH {AWAY}; UPDATE away_a SET v = 'x'; ALTER TABLE away ATTACH {AWAY} {SPAN}",
    ),
    # One transaction: nobody ever sees it unlogged.
    "copied": (
        "PARTITION_CAME",
        (
            "CREATE UNLOGGED TABLE copied_b PARTITION OF copied FOR VALUES FROM (100) TO (200);"
            "INSERT INTO copied VALUES (150, 'not in the log');ALTER TABLE copied_b SET LOGGED"
        ),
    ),
    "brief": (
        "PARTITION_EMPTIED",
        (
            "CREATE TABLE brief_b PARTITION OF brief FOR VALUES FROM (100) TO (200); "
            "INSERT INTO brief VALUES (150, 'in the log'); TRUNCATE brief_b"
        ),
    ),
    "went": ("PARTITION_GONE", "ALTER TABLE went DETACH PARTITION went_b"),
    "emptied": ("PARTITION_EMPTIED", "TRUNCATE emptied_b"),
    "halves": ("PARTITION_EMPTIED", "TRUNCATE halves_a, halves_b"),
    "elsewhere": (
        "TABLE_RENAMED",
        "ALTER TABLE elsewhere RENAME TO o; INSERT INTO o VALUES (1); ALTER TABLE o RENAME TO elsewhere",
    ),
    "moved": (
        "TABLE_RENAMED",
        f"ALTER TABLE moved {TO} aside; INSERT INTO aside.moved VALUES (1); {BACK_TO} public",
    ),
    "coloured": (
        "LABEL_RENAMED",
        f"{PAINT} 'red' TO 'pink'; INSERT INTO coloured VALUES (1, 'pink'); {PAINT} 'pink' TO 'red'",
    ),
    "twice": ("KEY_NOT_UNIQUE", "ALTER TABLE twice DROP CONSTRAINT twice_pkey"),
    "shared": (
        "IDENTITY_TAKEN_BACK",
        f"{UNKEYED}; INSERT INTO shared VALUES (1, 'w'); DELETE FROM shared WHERE v = 'w'; {KEYED_AGAIN}",
    ),
    "loose": ("TABLE_UNLOGGED", "ALTER TABLE loose_a SET UNLOGGED"),
    "unlogged": (
        "TABLE_UNLOGGED",
        "CREATE UNLOGGED TABLE unlogged_b PARTITION OF unlogged FOR VALUES FROM (100) TO (200)",
    ),
    "refused": ("IDENTITY_REFUSED", "ALTER TABLE refused REPLICA IDENTITY NOTHING"),
}
"""Table → the code of what is found, and what is done to it."""
