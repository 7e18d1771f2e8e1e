package etcdtest

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Txn answers the only transactions that an apiserver sends: if a key has not
// changed since it was read then put or delete it, else read it.
func (s *Server) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if len(r.Compare) != 1 || r.Compare[0].Target != pb.Compare_MOD || r.Compare[0].Result != pb.Compare_EQUAL {
		return nil, status.Error(codes.Unimplemented, "a transaction that no apiserver sends")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(r.Compare[0].Key)
	now, there := s.at(key, s.revision)
	if !there {
		now.revision = 0
	}
	answer := &pb.TxnResponse{Succeeded: now.revision == r.Compare[0].GetModRevision()}
	operations := r.Failure
	if answer.Succeeded {
		operations = r.Success
	}
	for _, o := range operations {
		answer.Responses = append(answer.Responses, s.operate(key, o))
	}
	answer.Header = &pb.ResponseHeader{ClusterId: s.Cluster(), Revision: s.revision}
	return answer, nil
}

// operate is called with mu held.
func (s *Server) operate(key string, o *pb.RequestOp) *pb.ResponseOp {
	switch {
	case o.GetRequestPut() != nil:
		s.changeTo(key, version{value: o.GetRequestPut().Value})
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
	case o.GetRequestDeleteRange() != nil:
		s.changeTo(key, version{deleted: true})
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1}}}
	}
	found := &pb.RangeResponse{}
	if v, ok := s.at(key, s.revision); ok {
		found.Kvs, found.Count = []*mvccpb.KeyValue{{Key: []byte(key), Value: v.value, ModRevision: v.revision}}, 1
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}}
}
