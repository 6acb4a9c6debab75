-- A database as schema version 1 wrote it: never change it, later releases must read it.
PRAGMA application_id = 1936226162;
BEGIN TRANSACTION;
CREATE TABLE channel (id INTEGER PRIMARY KEY, channel_id TEXT NOT NULL UNIQUE);
INSERT INTO "channel" VALUES(1,'a');
CREATE TABLE record (
    channel INTEGER NOT NULL REFERENCES channel (id),
    kind TEXT NOT NULL,
    key BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (channel, kind, key)
) WITHOUT ROWID;
INSERT INTO "record" VALUES(1,'sds.log',X'0001',2364004321,X'76616C7565');
INSERT INTO "record" VALUES(1,'sds.meta',X'',1039467727,X'');
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO "schema_version" VALUES(1);
COMMIT;
