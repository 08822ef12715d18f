package workspace

// schema is the tables of the index (see doc.go for what the columns mean). An
// index that was made with any other text is rebuilt from the journal, while
// that is whole; what is made from the rows alone belongs below.
const schema = `
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE writer(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, run TEXT NOT NULL,
  terminal TEXT NOT NULL, token TEXT NOT NULL, UNIQUE(kind, name, run, terminal, token));
CREATE TABLE version(id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, writer INTEGER NOT NULL);
CREATE TABLE checkpoint(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, parent INTEGER NOT NULL, auto INTEGER NOT NULL,
  reason TEXT NOT NULL, run TEXT NOT NULL, flushed INTEGER NOT NULL, time INTEGER NOT NULL, generation INTEGER NOT NULL,
  version INTEGER NOT NULL, next_ino INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL, mounts BLOB);
CREATE TABLE lineage(n INTEGER PRIMARY KEY, id BLOB NOT NULL, name TEXT NOT NULL, checkpoint INTEGER NOT NULL, checkpoint_name TEXT NOT NULL,
  next_ino INTEGER NOT NULL, time INTEGER NOT NULL);
CREATE TABLE twin(origin BLOB NOT NULL, theirs INTEGER NOT NULL, ours INTEGER NOT NULL, PRIMARY KEY(origin, theirs)) WITHOUT ROWID;
CREATE TABLE merged(other BLOB NOT NULL, ino INTEGER NOT NULL, mine INTEGER NOT NULL, theirs INTEGER NOT NULL, PRIMARY KEY(other, ino)) WITHOUT ROWID;
CREATE TABLE segment(num INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE);
CREATE TABLE epoch(num INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, kind TEXT NOT NULL,
  request BLOB, reply BLOB);
CREATE TABLE inode(ino INTEGER PRIMARY KEY, mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,
  nlink INTEGER NOT NULL, size INTEGER NOT NULL, alloc INTEGER NOT NULL, rdev INTEGER NOT NULL,
  atime INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, btime INTEGER NOT NULL,
  target BLOB, parent INTEGER NOT NULL, cookie INTEGER NOT NULL, writer INTEGER NOT NULL, born INTEGER NOT NULL,
  data INTEGER NOT NULL);
CREATE TABLE past_inode(ino INTEGER NOT NULL, mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,
  nlink INTEGER NOT NULL, size INTEGER NOT NULL, alloc INTEGER NOT NULL, rdev INTEGER NOT NULL,
  atime INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, btime INTEGER NOT NULL,
  target BLOB, parent INTEGER NOT NULL, cookie INTEGER NOT NULL, writer INTEGER NOT NULL, born INTEGER NOT NULL,
  data INTEGER NOT NULL, died INTEGER NOT NULL, PRIMARY KEY(ino, born)) WITHOUT ROWID;
CREATE TABLE orphan(ino INTEGER PRIMARY KEY);
CREATE TABLE entry(parent INTEGER NOT NULL, name BLOB NOT NULL, ino INTEGER NOT NULL, cookie INTEGER NOT NULL,
  born INTEGER NOT NULL, PRIMARY KEY(parent, name)) WITHOUT ROWID;
CREATE TABLE past_entry(parent INTEGER NOT NULL, name BLOB NOT NULL, ino INTEGER NOT NULL, cookie INTEGER NOT NULL,
  born INTEGER NOT NULL, died INTEGER NOT NULL, PRIMARY KEY(parent, cookie)) WITHOUT ROWID;
CREATE TABLE extent(ino INTEGER NOT NULL, off INTEGER NOT NULL, len INTEGER NOT NULL, segment INTEGER NOT NULL,
  place INTEGER NOT NULL, whole INTEGER NOT NULL, delta INTEGER NOT NULL, born INTEGER NOT NULL,
  PRIMARY KEY(ino, off)) WITHOUT ROWID;
CREATE TABLE past_extent(ino INTEGER NOT NULL, off INTEGER NOT NULL, len INTEGER NOT NULL, segment INTEGER NOT NULL,
  place INTEGER NOT NULL, whole INTEGER NOT NULL, delta INTEGER NOT NULL, born INTEGER NOT NULL, died INTEGER NOT NULL,
  PRIMARY KEY(ino, off, born)) WITHOUT ROWID;
CREATE TABLE xattr(ino INTEGER NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, born INTEGER NOT NULL,
  PRIMARY KEY(ino, name)) WITHOUT ROWID;
CREATE TABLE past_xattr(ino INTEGER NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL, born INTEGER NOT NULL,
  died INTEGER NOT NULL, PRIMARY KEY(ino, name, born)) WITHOUT ROWID;
CREATE TABLE dir(ino INTEGER PRIMARY KEY, path TEXT NOT NULL, born INTEGER NOT NULL);
CREATE TABLE past_dir(ino INTEGER NOT NULL, path TEXT NOT NULL, born INTEGER NOT NULL, died INTEGER NOT NULL,
  PRIMARY KEY(ino, born)) WITHOUT ROWID;
`

// views is all that the rows say anyway: an index that was made with another
// text is made again when it is opened (see [db.Open]).
const views = indexes + nowViews + pastViews + statistics

// indexes are those of the statements here; people's are with the views.
//
// No partial index on a table of the hot path: SQLite may then compile a
// statement again whenever a parameter changes.
const indexes = `
CREATE INDEX version_generation ON version(generation);
CREATE INDEX version_writer ON version(writer);
CREATE INDEX twin_ours ON twin(ours);
CREATE INDEX past_inode_died ON past_inode(died);
CREATE UNIQUE INDEX entry_cookie ON entry(parent, cookie);
CREATE INDEX entry_ino ON entry(ino);
CREATE INDEX past_entry_name ON past_entry(parent, name);
CREATE INDEX past_entry_ino ON past_entry(ino);
CREATE INDEX past_entry_died ON past_entry(died);
CREATE INDEX extent_segment ON extent(segment, place);
CREATE INDEX past_extent_segment ON past_extent(segment, place);
CREATE INDEX past_extent_died ON past_extent(died);
CREATE INDEX past_xattr_died ON past_xattr(died);
CREATE INDEX past_dir_died ON past_dir(died);
CREATE INDEX past_dir_path ON past_dir(path);
CREATE INDEX dir_path ON dir(path);
`
