package workspace

// statistics are what SQLite's planner believes of the tables, in this database
// and in any tool: a tree as usual, and never counted, so that plans do not
// change with what is in it. An inode has one name, and there are ten files to a
// directory; then times are looked up by inode_mtime, and whoever groups by
// directory reads directories by path and their entries by key, without sorting.
// Nothing is said of other tables and indexes: the statements of the hot path
// have no choice that this would change (TestQueryPlans).
const statistics = `
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1(tbl, idx, stat) VALUES ('entry', 'entry_ino', '1000000 1'), ('dir', 'dir_path', '100000 1'),
  ('inode', 'inode_mtime', '1000000 10'), ('inode', 'inode_writer', '1000000 1000');
`

// nowViews show the index to people: they use nothing but what any SQLite tool
// has, so that they work in the sqlite3 shell too. The second part of the
// time's text is exact to the millisecond; mtime_ns is exact.
//
// The index on the text of mtime is what makes `mtime > '2026-06-09'` a range
// scan: the expression in the view must stay the same to the letter. Where to
// begin the planner decides by the statistics; for the names of tags CROSS JOIN
// says it.
const nowViews = `
CREATE INDEX inode_mtime ON inode(strftime('%Y-%m-%d %H:%M:%f', mtime / 1000000000.0, 'unixepoch'));
CREATE INDEX inode_writer ON inode(writer);
CREATE INDEX xattr_tag ON xattr(substr(CAST(name AS TEXT), 6));
CREATE VIEW files AS SELECT
  CASE d.path WHEN '/' THEN '/' ELSE d.path || '/' END || CAST(e.name AS TEXT) AS path,
  d.path AS dir,
  CAST(e.name AS TEXT) AS name,
  CASE i.mode & 61440 WHEN 32768 THEN 'file' WHEN 16384 THEN 'dir' WHEN 40960 THEN 'symlink' WHEN 4096 THEN 'fifo'
    WHEN 49152 THEN 'socket' WHEN 8192 THEN 'char' WHEN 24576 THEN 'block' END AS kind,
  CASE i.mode & 61440 WHEN 16384 THEN 0 ELSE i.size END AS size,
  printf('%04o', i.mode & 4095) AS mode,
  strftime('%Y-%m-%d %H:%M:%f', i.mtime / 1000000000.0, 'unixepoch') AS mtime,
  strftime('%Y-%m-%d %H:%M:%f', i.ctime / 1000000000.0, 'unixepoch') AS ctime,
  strftime('%Y-%m-%d %H:%M:%f', i.btime / 1000000000.0, 'unixepoch') AS btime,
  w.name AS writer,
  w.kind AS writer_kind,
  nullif(w.run, '') AS run,
  nullif(w.terminal, '') AS terminal,
  i.uid AS uid, i.gid AS gid, i.nlink AS nlink, i.ino AS ino, i.mtime AS mtime_ns,
  CAST(i.target AS TEXT) AS target
FROM dir d JOIN entry e ON e.parent = d.ino JOIN inode i ON i.ino = e.ino LEFT JOIN writer w ON w.id = i.writer;
CREATE VIEW tags AS SELECT
  CASE d.path WHEN '/' THEN '/' ELSE d.path || '/' END || CAST(e.name AS TEXT) AS path,
  substr(CAST(x.name AS TEXT), 6) AS name,
  CAST(x.value AS TEXT) AS value
FROM xattr x CROSS JOIN entry e ON e.ino = x.ino JOIN dir d ON d.ino = e.parent
WHERE x.name >= CAST('user.' AS BLOB) AND x.name < CAST('user/' AS BLOB);
CREATE VIEW checkpoints AS SELECT id, name, nullif(parent, 0) AS parent, auto, nullif(reason, '') AS note, nullif(run, '') AS run, flushed,
  strftime('%Y-%m-%d %H:%M:%f', time / 1000000000.0, 'unixepoch') AS created_at, files, bytes FROM checkpoint;
`

// pastViews show every checkpoint: an entry of the present or of the past, and
// the one row of its inode, and of its directory's path, that the checkpoint
// sees. Each is found by a key; the planner cannot do that with a union inside
// a join, hence the pairs of LEFT JOIN.
const pastViews = `
CREATE VIEW files_at AS ` + filesAt + `entry e ON e.born <= c.version ` + filesAtRows + `
UNION ALL ` + filesAt + `past_entry e ON e.born <= c.version AND e.died > c.version ` + filesAtRows + `;
CREATE VIEW tags_at AS ` + tagsAt + `xattr x ON x.born <= c.version` + tagsAtEntry + `
UNION ALL ` + tagsAt + `xattr x ON x.born <= c.version` + tagsAtPastEntry + `
UNION ALL ` + tagsAt + `past_xattr x ON x.born <= c.version AND x.died > c.version` + tagsAtEntry + `
UNION ALL ` + tagsAt + `past_xattr x ON x.born <= c.version AND x.died > c.version` + tagsAtPastEntry + `;
`

const filesAt = `SELECT
  c.name AS checkpoint,
  CASE coalesce(d.path, pd.path) WHEN '/' THEN '/' ELSE coalesce(d.path, pd.path) || '/' END || CAST(e.name AS TEXT) AS path,
  coalesce(d.path, pd.path) AS dir,
  CAST(e.name AS TEXT) AS name,
  CASE coalesce(i.mode, p.mode) & 61440 WHEN 32768 THEN 'file' WHEN 16384 THEN 'dir' WHEN 40960 THEN 'symlink' WHEN 4096 THEN 'fifo'
    WHEN 49152 THEN 'socket' WHEN 8192 THEN 'char' WHEN 24576 THEN 'block' END AS kind,
  CASE coalesce(i.mode, p.mode) & 61440 WHEN 16384 THEN 0 ELSE coalesce(i.size, p.size) END AS size,
  printf('%04o', coalesce(i.mode, p.mode) & 4095) AS mode,
  strftime('%Y-%m-%d %H:%M:%f', coalesce(i.mtime, p.mtime) / 1000000000.0, 'unixepoch') AS mtime,
  strftime('%Y-%m-%d %H:%M:%f', coalesce(i.ctime, p.ctime) / 1000000000.0, 'unixepoch') AS ctime,
  strftime('%Y-%m-%d %H:%M:%f', coalesce(i.btime, p.btime) / 1000000000.0, 'unixepoch') AS btime,
  w.name AS writer,
  w.kind AS writer_kind,
  nullif(w.run, '') AS run,
  nullif(w.terminal, '') AS terminal,
  coalesce(i.uid, p.uid) AS uid, coalesce(i.gid, p.gid) AS gid, coalesce(i.nlink, p.nlink) AS nlink, e.ino AS ino,
  coalesce(i.mtime, p.mtime) AS mtime_ns,
  CAST(coalesce(i.target, p.target) AS TEXT) AS target
FROM checkpoint c CROSS JOIN `

const filesAtRows = `LEFT JOIN inode i ON i.ino = e.ino AND i.born <= c.version
  LEFT JOIN past_inode p ON p.ino = e.ino AND p.born <= c.version AND p.died > c.version
  LEFT JOIN dir d ON d.ino = e.parent AND d.born <= c.version
  LEFT JOIN past_dir pd ON pd.ino = e.parent AND pd.born <= c.version AND pd.died > c.version
  LEFT JOIN writer w ON w.id = coalesce(i.writer, p.writer)`

const tagsAt = `SELECT
  c.name AS checkpoint,
  CASE coalesce(d.path, pd.path) WHEN '/' THEN '/' ELSE coalesce(d.path, pd.path) || '/' END || CAST(e.name AS TEXT) AS path,
  substr(CAST(x.name AS TEXT), 6) AS name,
  CAST(x.value AS TEXT) AS value
FROM checkpoint c CROSS JOIN `

const tagsAtEntry = ` CROSS JOIN entry e ON e.ino = x.ino AND e.born <= c.version` + tagsAtDir

const tagsAtPastEntry = ` CROSS JOIN past_entry e ON e.ino = x.ino AND e.born <= c.version AND e.died > c.version` + tagsAtDir

const tagsAtDir = `
  LEFT JOIN dir d ON d.ino = e.parent AND d.born <= c.version
  LEFT JOIN past_dir pd ON pd.ino = e.parent AND pd.born <= c.version AND pd.died > c.version
WHERE x.name >= CAST('user.' AS BLOB) AND x.name < CAST('user/' AS BLOB)`
