module github.com/kube-atrest/atrest/bench

go 1.26.0

require github.com/kube-atrest/atrest v0.0.0

replace github.com/kube-atrest/atrest => ../
