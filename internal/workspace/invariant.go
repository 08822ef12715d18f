package workspace

// invariants are queries that return nothing on a sound index: each row is a
// problem, its first column a sentence.
var invariants = []string{
	`SELECT 'entry '||parent||'/'||quote(name)||' names inode '||ino||', which does not exist'
	 FROM entry e WHERE NOT EXISTS (SELECT 1 FROM inode WHERE ino = e.ino)`,
	`SELECT 'entry '||parent||'/'||quote(name)||' is in no directory'
	 FROM entry e WHERE NOT EXISTS (SELECT 1 FROM inode WHERE ino = e.parent AND mode & 61440 = 16384)`,
	`SELECT 'entry '||e.parent||'/'||quote(e.name)||' has cookie '||e.cookie||', its directory has given out '||i.cookie
	 FROM entry e JOIN inode i ON i.ino = e.parent WHERE e.cookie > i.cookie OR e.cookie < 1`,
	`SELECT 'inode '||ino||' has link count '||nlink||' but '||names||' names' FROM
	  (SELECT i.ino, i.nlink, (SELECT count(*) FROM entry e WHERE e.ino = i.ino) AS names
	   FROM inode i WHERE i.mode & 61440 <> 16384) WHERE nlink <> names`,
	`SELECT 'directory '||ino||' has link count '||nlink||' but '||subdirs||' subdirectories' FROM
	  (SELECT i.ino, i.nlink, (SELECT count(*) FROM entry e JOIN inode c ON c.ino = e.ino
	     WHERE e.parent = i.ino AND c.mode & 61440 = 16384) AS subdirs
	   FROM inode i WHERE i.mode & 61440 = 16384) WHERE nlink <> 0 AND nlink <> 2 + subdirs OR nlink = 0 AND subdirs <> 0`,
	`SELECT 'directory '||ino||' says '||size||' entries but has '||n FROM
	  (SELECT i.ino, i.size, (SELECT count(*) FROM entry e WHERE e.parent = i.ino) AS n
	   FROM inode i WHERE i.mode & 61440 = 16384) WHERE size <> n`,
	`SELECT 'directory '||i.ino||' has '||count(e.ino)||' names' FROM inode i LEFT JOIN entry e ON e.ino = i.ino
	 WHERE i.mode & 61440 = 16384 AND i.nlink > 0 AND i.ino <> 1 GROUP BY i.ino HAVING count(e.ino) <> 1`,
	`SELECT 'directory '||e.ino||' says its parent is '||i.parent||' but it is in '||e.parent
	 FROM entry e JOIN inode i ON i.ino = e.ino WHERE i.mode & 61440 = 16384 AND i.parent <> e.parent`,
	`SELECT 'the past of inode '||ino||' from version '||born||' to '||died||' does not end before the next begins' FROM
	  (SELECT ino, born, died, coalesce(lead(born) OVER (PARTITION BY ino ORDER BY born), (SELECT born FROM inode i WHERE i.ino = p.ino)) AS next FROM past_inode p)
	  WHERE died <= born OR died > next`,
	`SELECT 'the past entry '||parent||'/'||quote(name)||' is one of the present too'
	 FROM past_entry p WHERE EXISTS (SELECT 1 FROM entry e WHERE e.parent = p.parent AND e.cookie = p.cookie)`,
	`SELECT 'the past of entry '||parent||'/'||quote(name)||' from version '||born||' to '||died||' is seen with the next' FROM
	  (SELECT parent, name, born, died, lead(born) OVER (PARTITION BY parent, name ORDER BY cookie) AS next FROM past_entry)
	  WHERE died <= born OR EXISTS (SELECT 1 FROM checkpoint WHERE version >= next AND version < died)`,
	`SELECT 'the past extent at '||off||' of inode '||ino||' from version '||born||' to '||died||' does not end before the next begins' FROM
	  (SELECT ino, off, born, died, lead(born) OVER (PARTITION BY ino, off ORDER BY born) AS next FROM past_extent) WHERE died <= born OR died > next`,
	`SELECT 'the past extent at '||off||' of inode '||ino||' lies outside its record'
	 FROM past_extent WHERE len < 1 OR off < 0 OR delta < 0 OR delta + len > whole`,
	`SELECT 'the past extent at '||off||' of inode '||ino||' is in segment '||segment||', which is not known'
	 FROM past_extent x WHERE NOT EXISTS (SELECT 1 FROM segment s WHERE s.num = x.segment)`,
	`SELECT 'the past attribute '||quote(name)||' of inode '||ino||' does not end before the next begins' FROM
	  (SELECT ino, name, born, died, lead(born) OVER (PARTITION BY ino, name ORDER BY born) AS next FROM past_xattr) WHERE died <= born OR died > next`,
	`SELECT 'the past path of directory '||ino||' does not end before the next begins' FROM
	  (SELECT ino, born, died, lead(born) OVER (PARTITION BY ino ORDER BY born) AS next FROM past_dir) WHERE died <= born OR died > next`,
	`SELECT 'checkpoint '||c.id||' sees the name '||quote(e.name)||' of inode '||e.ino||', which it does not see' FROM past_entry e
	 JOIN checkpoint c ON c.id = (SELECT min(id) FROM checkpoint WHERE version >= e.born) AND c.version < e.died
	 WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = e.ino AND i.born <= c.version)
	 AND NOT EXISTS (SELECT 1 FROM past_inode i WHERE i.ino = e.ino AND i.born <= c.version AND i.died > c.version)`,
	`SELECT 'checkpoint '||c.id||' sees bytes at '||x.off||' of inode '||x.ino||', which is not that long then' FROM past_extent x
	 JOIN checkpoint c ON c.id = (SELECT min(id) FROM checkpoint WHERE version >= x.born) AND c.version < x.died
	 WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = x.ino AND i.born <= c.version AND i.size >= x.off + x.len)
	 AND NOT EXISTS (SELECT 1 FROM past_inode i WHERE i.ino = x.ino AND i.born <= c.version AND i.died > c.version AND i.size >= x.off + x.len)`,
	`SELECT 'checkpoint '||id||' descends from '||parent||', which is not there' FROM checkpoint c
	 WHERE parent <> 0 AND NOT EXISTS (SELECT 1 FROM checkpoint p WHERE p.id = c.parent AND p.id < c.id)`,
	`SELECT 'version '||version||' of checkpoint '||id||' comes before that of an earlier one' FROM
	  (SELECT id, version, max(version) OVER (ORDER BY id) AS newest FROM checkpoint) WHERE version < newest`,
	`SELECT 'a row of the present has version '||born||', which is not known' FROM (SELECT born FROM inode UNION SELECT born FROM entry)
	 WHERE born NOT IN (SELECT id FROM version)`,
	`SELECT 'there is no root directory' WHERE NOT EXISTS (SELECT 1 FROM inode WHERE ino = 1 AND mode & 61440 = 16384 AND nlink >= 2)`,
	`WITH RECURSIVE reach(ino) AS (SELECT 1 UNION
	   SELECT e.ino FROM reach r JOIN entry e ON e.parent = r.ino JOIN inode i ON i.ino = e.ino AND i.mode & 61440 = 16384)
	 SELECT 'directory '||i.ino||' cannot be reached from the root' FROM inode i
	   WHERE i.mode & 61440 = 16384 AND i.nlink > 0 AND i.ino NOT IN (SELECT ino FROM reach)`,
	`SELECT 'directory '||i.ino||' has no path' FROM inode i WHERE i.mode & 61440 = 16384 AND i.nlink > 0 AND NOT EXISTS (SELECT 1 FROM dir d WHERE d.ino = i.ino)`,
	`SELECT 'directory '||e.ino||' is at '||quote(should)||' but its row says '||quote(path) FROM
	  (SELECT e.ino, d.path, CASE p.path WHEN '/' THEN '/' ELSE p.path||'/' END || CAST(e.name AS TEXT) AS should
	   FROM dir d JOIN entry e ON e.ino = d.ino JOIN dir p ON p.ino = e.parent) e WHERE should <> path`,
	`SELECT 'there is a path for inode '||d.ino||', which is no directory in use'
	 FROM dir d WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = d.ino AND i.mode & 61440 = 16384 AND i.nlink > 0)`,
	`SELECT 'extent at '||x.off||' of inode '||x.ino||', which is no regular file'
	 FROM extent x WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = x.ino AND i.mode & 61440 = 32768)`,
	`SELECT 'extent at '||off||' of inode '||ino||' overlaps the one before' FROM
	  (SELECT ino, off, lag(off + len) OVER (PARTITION BY ino ORDER BY off) AS before FROM extent) WHERE before > off`,
	`SELECT 'extent at '||off||' of inode '||ino||' lies outside its record'
	 FROM extent WHERE len < 1 OR off < 0 OR delta < 0 OR delta + len > whole`,
	`SELECT 'extent at '||off||' of inode '||ino||' is in segment '||segment||', which is not known'
	 FROM extent x WHERE NOT EXISTS (SELECT 1 FROM segment s WHERE s.num = x.segment)`,
	`SELECT 'inode '||i.ino||' has size '||i.size||' but bytes up to '||x.e
	 FROM inode i JOIN (SELECT ino, max(off + len) AS e FROM extent GROUP BY ino) x ON x.ino = i.ino WHERE x.e > i.size`,
	`SELECT 'inode '||ino||' says '||alloc||' bytes are allocated but has '||n FROM
	  (SELECT i.ino, i.alloc, (SELECT coalesce(sum(len), 0) FROM extent x WHERE x.ino = i.ino) AS n FROM inode i) WHERE alloc <> n`,
	`SELECT 'attribute '||quote(name)||' belongs to inode '||ino||', which does not exist'
	 FROM xattr x WHERE NOT EXISTS (SELECT 1 FROM inode WHERE ino = x.ino)`,
	`SELECT 'inode '||i.ino||' was written by writer '||i.writer||', who is not known'
	 FROM inode i WHERE i.writer <> 0 AND NOT EXISTS (SELECT 1 FROM writer WHERE id = i.writer)`,
	`SELECT 'inode '||ino||' has no name and no mount is open that could hold it'
	 FROM inode WHERE nlink = 0 AND NOT EXISTS (SELECT 1 FROM epoch)`,
}
