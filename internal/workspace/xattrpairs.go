package workspace

import (
	"maps"
	"slices"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// An inode may have a mebibyte of extended attributes, and a restore may touch
// any number of inodes: they are asked for their sizes first, which most do not
// have, and then compared some at a time.

// mostCompared bounds the extended attributes that are compared together,
// bytes; those of one pair of inodes may be more.
const mostCompared = 4 << 20

// mostChanged bounds the extended attributes that one plan sets, with those
// that stand in their place, bytes. They are held until it is reached.
const mostChanged = 64 << 20

// inoPair is an inode at two points: twice the same number, or two.
type inoPair [2]Ino

// xattrSizes returns what the extended attributes of inodes take when they are
// held, bytes; inodes that have none are left out.
func (p point) xattrSizes(inos []Ino) (map[Ino]int, error) {
	all := map[Ino]int{}
	inos = slices.Sorted(slices.Values(inos))
	for part := range slices.Chunk(inos, setSize) {
		if some, err := p.anyXattr(part[0], part[len(part)-1]); err != nil {
			return nil, err
		} else if !some {
			continue
		}
		err := p.ofSet(part, "ino, length(name) + length(value)", "xattr", "ino", func(r *db.Row) error {
			all[Ino(r.Int64(0))] += xattrCost + int(r.Int64(1))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// anyXattr tells whether an inode in first..last has, or had, extended
// attributes: one look at the index instead of one for each inode.
func (p point) anyXattr(first, last Ino) (yes bool, err error) {
	err = p.tx.Query("SELECT 1 WHERE EXISTS (SELECT 1 FROM xattr WHERE ino >= ?1 AND ino <= ?2) OR EXISTS (SELECT 1 FROM past_xattr WHERE ino >= ?1 AND ino <= ?2)",
		[]any{int64(first), int64(last)}, func(*db.Row) error { yes = true; return nil })
	return yes, err
}

// xattrsOf returns the extended attributes of inodes.
func (p point) xattrsOf(inos []Ino) (map[Ino]map[string]string, error) {
	all := map[Ino]map[string]string{}
	return all, p.ofSet(inos, "ino, name, value", "xattr", "ino", func(r *db.Row) error {
		ino := Ino(r.Int64(0))
		if all[ino] == nil {
			all[ino] = map[string]string{}
		}
		all[ino][string(r.Bytes(1))] = string(r.Bytes(2))
		return nil
	})
}

// eachXattrs calls fn with the extended attributes that pairs of inodes have at
// a and at b, for those where one of the two has any. fn must not keep them.
func eachXattrs(a, b point, pairs []inoPair, fn func(i int, atA, atB map[string]string) error) error {
	sizes, err := sizesOf(a, b, pairs)
	if err != nil {
		return err
	}
	var some []int // of pairs
	held := 0
	look := func() error {
		var inos [2][]Ino
		for _, i := range some {
			inos[0], inos[1] = append(inos[0], pairs[i][0]), append(inos[1], pairs[i][1])
		}
		atA, err := a.xattrsOf(inos[0])
		if err != nil {
			return err
		}
		atB, err := b.xattrsOf(inos[1])
		if err != nil {
			return err
		}
		for _, i := range some {
			if err := fn(i, atA[pairs[i][0]], atB[pairs[i][1]]); err != nil {
				return err
			}
		}
		some, held = some[:0], 0
		return nil
	}
	for i, n := range sizes {
		if n == 0 {
			continue
		}
		if held+n > mostCompared && len(some) > 0 {
			if err := look(); err != nil {
				return err
			}
		}
		some, held = append(some, i), held+n
	}
	return look()
}

// sizesOf returns what each pair has, bytes.
func sizesOf(a, b point, pairs []inoPair) ([]int, error) {
	sizes := make([]int, len(pairs))
	for side, p := range []point{a, b} {
		inos := make([]Ino, len(pairs))
		for i := range pairs {
			inos[i] = pairs[i][side]
		}
		all, err := p.xattrSizes(inos)
		if err != nil {
			return nil, err
		}
		for i, ino := range inos {
			sizes[i] += all[ino]
		}
	}
	return sizes, nil
}

// xattrChanges are extended attributes that an inode shall get, or lose (gone).
type xattrChanges map[string]xattr

// changesTo returns what makes the extended attributes have what want says.
func changesTo(have, want map[string]string) xattrChanges {
	c := xattrChanges{}
	for name := range have {
		if _, ok := want[name]; !ok {
			c[name] = xattr{gone: true}
		}
	}
	for name, value := range want {
		if old, ok := have[name]; !ok || old != value {
			c[name] = xattr{value: []byte(value)}
		}
	}
	return c
}

// valueBudget counts the extended attributes that a change holds.
type valueBudget int

// take counts those of one inode; TooMany if they are too many.
func (b *valueBudget) take(all map[string]xattr) error {
	for name, x := range all {
		*b += valueBudget(x.held(name))
	}
	if *b > mostChanged {
		return holt.Errorf(holt.TooMany, "more than %d MiB of extended attributes would change at once", mostChanged>>20).
			WithHint("restore or merge fewer paths at a time")
	}
	return nil
}

// attributes gives inodes their extended attributes, where they differ.
func (p *planEncoder) attributes() error {
	all := map[point][]inoPair{}
	for _, ino := range p.order {
		w := p.plan.inodes[ino]
		if w.made == nil {
			all[w.at] = append(all[w.at], inoPair{w.row.ino, ino})
		} else if err := p.changeXattrs(ino, w.made.attrs); err != nil {
			return err
		}
	}
	for at, pairs := range all {
		err := eachXattrs(at, p.plan.now, pairs, func(i int, then, now map[string]string) error {
			return p.changeXattrs(pairs[i][1], changesTo(now, then))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *planEncoder) changeXattrs(ino Ino, c xattrChanges) error {
	if len(c) == 0 {
		return nil
	}
	if err := p.values.take(c); err != nil {
		return err
	}
	if in, err := p.get(ino); err == nil {
		have, err := p.t.xattrs(in) // applying the parts looks at all of them
		if err != nil {
			return err
		}
		if err := p.values.take(have); err != nil {
			return err
		}
	} else if err != syscall.ENOENT {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		kind := opSetXattr
		if c[name].gone {
			kind = opDelXattr
		}
		p.add(op{kind: kind, ino: ino, name: name, blob: c[name].value})
	}
	return nil
}
