# Operations whose repetition or loss shows: appends, exclusive creates,
# mkdirs, renames, links, unlinks; and on one file what fsx does: writes, cuts,
# copies, maps and reads at random places, compared with the same in memory,
# half of them once the kernel has dropped its pages: the daemon answers those.
# What must be there is kept in memory and, for verify, in load/expected.
import hashlib, json, mmap, os, random, sys

MOST = 1 << 18 # bytes of the file of fsx

class Fsx:
    def __init__(self, rnd):
        self.rnd, self.want, self.operations, self.wrong = rnd, bytearray(), 0, 0
        self.fd = os.open('load/fsx', os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def span(self):
        at = self.rnd.randrange(MOST)
        return at, self.rnd.randrange(1, min(MOST - at, 1 << 14) + 1)

    def put(self, at, data):
        self.want += bytes(max(0, at + len(data) - len(self.want)))
        self.want[at:at + len(data)] = data

    def step(self):
        kind = self.rnd.randrange(6)
        at, n = self.span()
        if kind == 0:
            data = self.rnd.randbytes(n)
            if os.pwrite(self.fd, data, at) != n:
                sys.exit('short write')
            self.put(at, data)
        elif kind == 1:
            os.ftruncate(self.fd, at)
            self.want = self.want[:at] + bytes(max(0, at - len(self.want)))
        elif kind == 2 and len(self.want) > 0:
            with mmap.mmap(self.fd, len(self.want)) as m:
                at %= len(self.want)
                data = self.rnd.randbytes(min(n, len(self.want) - at))
                m[at:at + len(data)] = data
                m.flush()
            self.put(at, data)
        elif kind == 3 and at + n <= len(self.want):
            to = self.rnd.randrange(MOST)
            if abs(to - at) >= n:
                n = os.copy_file_range(self.fd, self.fd, n, at, to)
                self.put(to, bytes(self.want[at:at + n]))
        elif kind == 4:
            os.fsync(self.fd)
        else:
            if self.rnd.randrange(2):
                os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            self.wrong += os.pread(self.fd, n, at) != bytes(self.want[at:at + n])
        self.operations += 1

def verify(expected):
    lost = repeated = 0
    lines = open('load/log').read().split('\n')[:-1]
    want = [str(i) for i in range(expected['appended'])]
    if lines != want:
        lost += len(set(want) - set(lines))
        repeated += len(lines) - len(set(lines))
        if not lost and not repeated:
            lost += 1
    names = set(os.listdir('load/tree'))
    lost += len(set(expected['names']) - names)
    repeated += len(names - set(expected['names']))
    for n, size in expected['sizes'].items():
        if os.stat('load/tree/' + n).st_size != size:
            lost += 1
    wrong = expected['wrong']
    with open('load/fsx', 'rb') as f:
        wrong += hashlib.sha256(f.read()).hexdigest() != expected['fsx']
    print('exact: %d operations, %d lost, %d repeated, %d wrong' % (expected['operations'], lost, repeated, wrong))
    sys.exit(1 if lost or repeated or wrong else 0)

if sys.argv[1:] == ['verify']:
    verify(json.load(open('load/expected')))

rnd = random.Random(int(os.environ['SEED']))
os.makedirs('load/tree')
appended = operations = 0
sizes = {}
fsx = Fsx(rnd)
log = os.open('load/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
i = 0
least = int(os.environ.get('LEAST', '200'))
while i < least or not os.path.exists('load/enough'):
    name = 'f%d' % i
    os.write(log, b'%d\n' % appended)
    appended += 1
    size = rnd.randrange(0, 20000)
    fd = os.open('load/tree/' + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    data = rnd.randbytes(size)
    if os.write(fd, data) != size:
        sys.exit('short write')
    if rnd.random() < 0.1:
        os.fsync(fd)
    os.close(fd)
    sizes[name] = size
    operations += 3
    kind = rnd.randrange(5)
    if kind == 0:
        os.rename('load/tree/' + name, 'load/tree/r%d' % i)
        sizes['r%d' % i] = sizes.pop(name)
    elif kind == 1:
        os.link('load/tree/' + name, 'load/tree/l%d' % i)
        sizes['l%d' % i] = size
    elif kind == 2:
        os.mkdir('load/tree/d%d' % i)
        os.rmdir('load/tree/d%d' % i)
    elif kind == 3:
        os.unlink('load/tree/' + name)
        del sizes[name]
    else:
        cut = rnd.randrange(0, 30000)
        os.truncate('load/tree/' + name, cut)
        sizes[name] = cut
    operations += 1
    for _ in range(4):
        fsx.step()
    i += 1
    if i % 10 == 0:
        with open('load/progress', 'w') as f:
            f.write(str(i))
os.close(log)
expected = {'appended': appended, 'operations': operations + fsx.operations, 'wrong': fsx.wrong,
            'fsx': hashlib.sha256(fsx.want).hexdigest(), 'names': sorted(sizes), 'sizes': sizes}
with open('load/expected', 'w') as f:
    json.dump(expected, f)
verify(expected)
