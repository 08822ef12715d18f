package chunk

// schema is the schema of the chunk index. The index can be rebuilt from the
// store, so an index with another schema is replaced.
const schema = `
CREATE TABLE pack(n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, size INTEGER NOT NULL);
CREATE TABLE chunk(n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, pack INTEGER NOT NULL, off INTEGER NOT NULL,
	stored INTEGER NOT NULL, length INTEGER NOT NULL, sum INTEGER NOT NULL, freed INTEGER);
CREATE INDEX chunk_pack ON chunk(pack);
-- lost: how many chunks of it are in no pack; -1: it cannot be read, and has no pieces
CREATE TABLE manifest(n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, lost INTEGER NOT NULL DEFAULT 0);
CREATE TABLE piece(manifest INTEGER NOT NULL, off INTEGER NOT NULL, len INTEGER NOT NULL, chunk INTEGER NOT NULL,
	delta INTEGER NOT NULL, PRIMARY KEY(manifest, off)) WITHOUT ROWID;
CREATE INDEX piece_chunk ON piece(chunk);
CREATE TABLE space(n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, gone INTEGER NOT NULL DEFAULT 0);
CREATE TABLE part(space INTEGER NOT NULL, name TEXT NOT NULL, manifest INTEGER NOT NULL, PRIMARY KEY(space, name)) WITHOUT ROWID;
CREATE INDEX part_manifest ON part(manifest);
CREATE TABLE doomed(object TEXT PRIMARY KEY, rank INTEGER NOT NULL);
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL);
`
