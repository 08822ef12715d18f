package workspace

// schema is the index (see doc.go for what the columns mean). An index that
// was made from any other text is rebuilt from the journal.
//
// No partial index on a table of the hot path: SQLite may then compile a
// statement anew whenever a parameter changes.
const schema = `
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE writer(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, run TEXT NOT NULL,
  terminal TEXT NOT NULL, token TEXT NOT NULL, UNIQUE(kind, name, run, terminal, token));
CREATE TABLE version(id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, writer INTEGER NOT NULL,
  UNIQUE(generation, writer));
CREATE TABLE segment(num INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE);
CREATE TABLE epoch(num INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, kind TEXT NOT NULL,
  request BLOB, reply BLOB);
CREATE TABLE inode(ino INTEGER PRIMARY KEY, mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,
  nlink INTEGER NOT NULL, size INTEGER NOT NULL, alloc INTEGER NOT NULL, rdev INTEGER NOT NULL,
  atime INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, btime INTEGER NOT NULL,
  target BLOB, parent INTEGER NOT NULL, cookie INTEGER NOT NULL, writer INTEGER NOT NULL, born INTEGER NOT NULL);
CREATE TABLE orphan(ino INTEGER PRIMARY KEY);
CREATE TABLE entry(parent INTEGER NOT NULL, name BLOB NOT NULL, ino INTEGER NOT NULL, cookie INTEGER NOT NULL,
  born INTEGER NOT NULL, PRIMARY KEY(parent, name)) WITHOUT ROWID;
CREATE UNIQUE INDEX entry_cookie ON entry(parent, cookie);
CREATE INDEX entry_ino ON entry(ino);
CREATE TABLE extent(ino INTEGER NOT NULL, off INTEGER NOT NULL, len INTEGER NOT NULL, segment INTEGER NOT NULL,
  place INTEGER NOT NULL, whole INTEGER NOT NULL, delta INTEGER NOT NULL, born INTEGER NOT NULL,
  PRIMARY KEY(ino, off)) WITHOUT ROWID;
CREATE INDEX extent_segment ON extent(segment);
CREATE TABLE xattr(ino INTEGER NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, born INTEGER NOT NULL,
  PRIMARY KEY(ino, name)) WITHOUT ROWID;
CREATE TABLE dir(ino INTEGER PRIMARY KEY, path TEXT NOT NULL);
CREATE INDEX dir_path ON dir(path);
` + views
