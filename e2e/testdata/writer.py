# Writes files and prints the name of each after its fsync has returned.
import hashlib, os, sys, random
round = sys.argv[1]
rnd = random.Random(int(os.environ['SEED']) + int(round))
os.makedirs('synced', exist_ok=True)
i = 0
while True:
    name = 'synced/%s-%d' % (round, i)
    data = rnd.randbytes(rnd.randrange(1, 200000))
    with open(name, 'wb') as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    print(name, len(data), hashlib.sha256(data).hexdigest(), flush=True)
    with open('unsynced', 'ab') as f:
        f.write(data)
    i += 1
