package etcdtest

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Save writes what etcdctl snapshot save does: etcd's database, and its SHA-256.
func (s *Server) Save(t testing.TB, path string) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		return s.saveTo(bucket)
	}))
	require.NoError(t, db.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.NoError(t, os.WriteFile(path, append(content, sum[:]...), 0o600))
}

// saveTo writes every revision under its number.
func (s *Server) saveTo(bucket *bolt.Bucket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, versions := range s.history {
		for _, v := range versions {
			name := binary.BigEndian.AppendUint64(nil, uint64(v.revision))
			name = binary.BigEndian.AppendUint64(append(name, '_'), 0)
			kv := &mvccpb.KeyValue{Key: []byte(key)}
			if v.deleted {
				name = append(name, 't')
			} else {
				kv.Value, kv.ModRevision = v.value, v.revision
			}
			data, err := proto.Marshal(protoadapt.MessageV2Of(kv))
			if err != nil {
				return err
			}
			if err := bucket.Put(name, data); err != nil {
				return err
			}
		}
	}
	return nil
}
