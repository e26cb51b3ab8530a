rackplanPictures.topology = function () { return {}; };
